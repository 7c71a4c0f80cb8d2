/* SPDX-License-Identifier: Apache-2.0 */
/* One function per rule; what each means is said in table.c and coll_table.c. */
#ifndef CHECK_RULES_H
#define CHECK_RULES_H

#include "check.h"

/* rules_load.c */
void rule_vtable(struct check *t);
void rule_init(struct check *t);
void rule_init_again(struct check *t);
void rule_contexts(struct check *t);
void rule_init_after_finalize(struct check *t);
void rule_reload(struct check *t);
void rule_unload(struct check *t);
void rule_net_attr(struct check *t);

/* rules_properties.c */
void rule_devices_stable(struct check *t);
void rule_properties(struct check *t);
void rule_properties_sysfs(struct check *t);
void rule_every_device(struct check *t);

/* rules_setup.c */
void rule_handle_size(struct check *t);
void rule_handle_state(struct check *t);
void rule_handle_garbage(struct check *t);
void rule_connect_returns(struct check *t);
void rule_accept_returns(struct check *t);
void rule_listen_close(struct check *t);
void rule_many_connections(struct check *t);
void rule_traffic_class(struct check *t);

/* rules_stranger.c */
void rule_stranger(struct check *t);
void rule_flood(struct check *t);

/* rules_request.c */
void rule_request_written(struct check *t);
void rule_test_returns(struct check *t);
void rule_outstanding(struct check *t);
void rule_sizes_null(struct check *t);
void rule_optional_recv(struct check *t);
void rule_iflush(struct check *t);
void rule_fifo(struct check *t);
void rule_two_threads(struct check *t);
void rule_proxies(struct check *t);

/* rules_data.c */
void rule_data(struct check *t);
void rule_sizes(struct check *t);
void rule_size_zero(struct check *t);
void rule_capacity(struct check *t);
void rule_send_done(struct check *t);
void rule_recycle(struct check *t);
void rule_size_2g(struct check *t);

/* rules_group.c */
void rule_tags(struct check *t);
void rule_sizes_exact(struct check *t);
void rule_sizes_group(struct check *t);
void rule_group_interleave(struct check *t);

/* rules_memory.c */
void rule_mr_use(struct check *t);
void rule_mr_global(struct check *t);
void rule_dmabuf_fd(struct check *t);
void rule_mr_race(struct check *t);

/* rules_end.c */
void rule_close_in_flight(struct check *t);
void rule_close_after_send(struct check *t);
void rule_close_after_death(struct check *t);
void rule_dereg_after_error(struct check *t);
void rule_error_latched(struct check *t);

/* rules_leaks.c */
void rule_leaks(struct check *t);

/* rules_coll_setup.c */
void rule_coll_vtable(struct check *t);
void rule_coll_init(struct check *t);
void rule_coll_init_again(struct check *t);
void rule_coll_contexts(struct check *t);
void rule_coll_reload(struct check *t);
void rule_coll_devices(struct check *t);
void rule_coll_devices_stable(struct check *t);
void rule_coll_properties(struct check *t);
void rule_coll_max_bytes(struct check *t);
void rule_coll_handle_size(struct check *t);
void rule_coll_listen_close(struct check *t);
void rule_coll_connect_waits(struct check *t);
void rule_coll_verdict(struct check *t);
void rule_coll_connect_death(struct check *t);
void rule_coll_connect_leaks(struct check *t);
void rule_coll_support(struct check *t);

/* rules_coll_data.c */
void rule_coll_types(struct check *t);
void rule_coll_data(struct check *t);
void rule_coll_bounds(struct check *t);
void rule_coll_counts(struct check *t);
void rule_coll_in_place(struct check *t);
void rule_coll_send_kept(struct check *t);
void rule_coll_done(struct check *t);
void rule_coll_stale(struct check *t);
void rule_coll_wrap(struct check *t);
void rule_coll_request_written(struct check *t);
void rule_coll_outstanding(struct check *t);
void rule_coll_order(struct check *t);
void rule_coll_size_null(struct check *t);
void rule_coll_iallreduce_returns(struct check *t);
void rule_coll_test_returns(struct check *t);
void rule_coll_iflush(struct check *t);
void rule_coll_flushes(struct check *t);
void rule_coll_mr(struct check *t);

/* rules_coll_end.c */
void rule_coll_two_groups(struct check *t);
void rule_coll_beside_net(struct check *t);
void rule_coll_death(struct check *t);
void rule_coll_end_after_error(struct check *t);
void rule_coll_close_in_flight(struct check *t);
void rule_coll_leaks(struct check *t);

#endif
