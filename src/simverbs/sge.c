/* SPDX-License-Identifier: Apache-2.0 */
/* Moving bytes between messages and lists of SGEs. */
#include "core.h"
#include "dma.h"

int sv_gather(const struct sv_qp *qp, const struct ibv_sge *sge, uint32_t num_sge, uint32_t offset,
	      uint32_t length, struct sv_frag *frags)
{
	int n = 0;

	for (uint32_t i = 0; i < num_sge && length; i++, sge++) {
		const struct sv_mr *mr;
		uint32_t part;
		uint64_t at;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		part = sge->length - offset < length ? sge->length - offset : length;
		at = sge->addr + offset;
		mr = sv_mr_find(qp->port, qp->pd, sge->lkey, at, part, 0);
		if (!mr)
			return -EINVAL;
		switch (sv_mr_reach(qp, mr)) {
		case SV_REACHED:
			break;
		case SV_REACH_ERROR:
			return -EIO;
		case SV_REACH_SILENT:
			return -ENOTCONN;
		}
		frags[n++] = (struct sv_frag){
		    .addr = (uintptr_t)mr->base + (at - mr->iova),
		    .length = part,
		    .unborrowable = mr->unborrowable,
		};
		length -= part;
		offset = 0;
	}
	return n;
}

bool sv_copy_payload(struct sv_port *port, const struct sv_packet *pkt, uint32_t from, void *dst,
		     uint32_t length)
{
	if (!length)
		return true;
	if (pkt->payload) {
		sv_dma_copy(dst, (const uint8_t *)pkt->payload + from, length);
		return true;
	}
	if (port->ops->copy_payload(port, pkt, from, dst, length)) {
		port->stats.payload_lost++;
		return false;
	}
	return true;
}

enum sv_copy sv_scatter(const struct sv_qp *qp, const struct sv_pd *pd, const struct ibv_sge *sge,
			uint32_t num_sge, uint32_t offset, const struct sv_packet *pkt,
			uint32_t from, uint32_t length)
{
	for (uint32_t i = 0; i < num_sge && length; i++, sge++) {
		uint32_t part;
		uint8_t *addr;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		part = sge->length - offset < length ? sge->length - offset : length;
		addr = sv_mr_translate(qp->port, pd, sge->lkey, sge->addr + offset, part,
				       IBV_ACCESS_LOCAL_WRITE);
		if (!addr)
			return SV_COPY_PROT;
		if (!sv_copy_payload(qp->port, pkt, from, addr, part))
			return SV_COPY_LOST;
		from += part;
		length -= part;
		offset = 0;
	}
	return SV_COPY_OK;
}
