/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long NCCL's own IB transport rides out a network that carries nothing: until its queue pairs
 * have spent their retries. A plugin that promises to survive more must not give up earlier.
 *
 * By the InfiniBand specification that is 4.096 µs × 2^timeout × (retry_cnt + 1), 34 s with NCCL's
 * defaults. A ConnectX-6 took 58.5 to 58.8 s with them, and 3.5 to 3.8 s for timeouts 10 to 16: its
 * time-outs last twice the nominal one, and none is shorter than that of 16. Twice the
 * specification's figure, and that of 16 at least, is longer than either.
 */
#ifndef HA_BASE_NCCL_WINDOW_H
#define HA_BASE_NCCL_WINDOW_H

/* NCCL's, where NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT are not set. */
#define HA_NCCLS_IB_TIMEOUT   20
#define HA_NCCLS_IB_RETRY_CNT 7

/* The longer of the two, in ms. INT_MAX: for ever, which is what a timeout of 0 means. */
int ha_nccl_window_ms(int timeout, int retry_cnt);

#endif
