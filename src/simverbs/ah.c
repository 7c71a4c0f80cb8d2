/* SPDX-License-Identifier: Apache-2.0 */
/* Address handles. */
#include "core.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

struct ibv_ah *sv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct sv_context *ctx = sv_ctx(pd->context);
	struct sv_port *port = ctx->port;
	struct sv_ah *ah = NULL;
	int err = sv_verb_gate(pd->context, SV_VERB_CREATE_AH);

	if (err)
		goto err;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	ah->pd = sv_pd(pd);
	sv_port_lock(port);
	err = port->num_ahs < port->cfg.limits.max_ah
		  ? sv_route_from_ah_attr(port, attr, &ah->route)
		  : ENOMEM;
	if (!err) {
		ah->ibv.handle = port->next_handle++;
		ah->pd->refs++;
		port->num_ahs++;
		sv_list_add_tail(&ctx->ahs, &ah->link);
	}
	sv_port_unlock(port);
	if (err)
		goto err;
	return &ah->ibv;
err:
	free(ah);
	errno = err;
	return NULL;
}

void sv_free_ah(struct sv_ah *ah)
{
	struct sv_port *port = sv_ctx_port(ah->ibv.context);

	sv_port_lock(port);
	sv_list_del(&ah->link);
	ah->pd->refs--;
	port->num_ahs--;
	sv_port_unlock(port);
	free(ah);
}

int sv_destroy_ah(struct ibv_ah *ibv)
{
	int err = sv_release_gate(ibv->context, SV_VERB_DESTROY_AH);

	if (!err)
		sv_free_ah(sv_container_of(ibv, struct sv_ah, ibv));
	return sv_answer(err);
}

/* The way back to whoever sent a datagram. */
int sv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
		       struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct sv_port *port = sv_ctx_port(context);
	uint32_t flow;
	const struct sv_phys_config *phys = sv_phys(port, port_num);
	int err = EINVAL;

	if (!phys)
		return EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.hop_limit = grh->hop_limit;
	flow = ntohl(grh->version_tclass_flow);
	attr->grh.flow_label = flow & 0xfffff;
	attr->grh.traffic_class = (uint8_t)(flow >> 20);
	/* The first entry with the address it was sent to: v1 and v2 lead to the same place. */
	sv_port_lock(port);
	for (uint32_t i = 0; i < phys->num_gids; i++) {
		if (!memcmp(&phys->gids[i].gid, &grh->dgid, sizeof(grh->dgid))) {
			attr->grh.sgid_index = (uint8_t)i;
			err = 0;
			break;
		}
	}
	sv_port_unlock(port);
	return err;
}

struct ibv_ah *sv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				    uint8_t port_num)
{
	struct ibv_ah_attr attr;
	int err = sv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr);

	if (err) {
		errno = err;
		return NULL;
	}
	return sv_create_ah(pd, &attr);
}
