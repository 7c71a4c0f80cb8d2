/* SPDX-License-Identifier: Apache-2.0 */
/* Moving bytes between messages and lists of SGEs. */
#include "core.h"
#include "dma.h"
#include "gpu.h"
#include "posted.h"

#include <stdlib.h>

/* Room for a whole payload. NULL: there is no memory. */
static uint8_t *stage(struct sv_port *port, size_t length)
{
	uint8_t *bytes = port->stage;

	if (port->stage_size < length) {
		bytes = realloc(bytes, length);
		if (!bytes)
			return NULL;
		port->stage = bytes;
		port->stage_size = length;
	}
	return bytes;
}

int sv_piece(struct sv_port *port, const struct sv_mr *mr, uint64_t addr, struct sv_packet *pkt,
	     uint32_t done, uint32_t length, struct sv_frag *frag)
{
	uint8_t *bytes = sv_mr_at(mr, addr);

	if (__builtin_expect(mr->gpu != NULL, 0)) {
		uint8_t *all = stage(port, pkt->payload_len);

		sv_posted_push(port);
		if (!all || sv_gpu_read(mr->gpu, all + done, bytes, length))
			return -EIO;
		bytes = all + done;
		pkt->flags |= SV_PKT_VOLATILE;
	}
	*frag = (struct sv_frag){
	    .addr = (uintptr_t)bytes, .length = length, .unborrowable = mr->unborrowable};
	return 0;
}

int sv_gather(const struct sv_qp *qp, const struct ibv_sge *sge, uint32_t num_sge, uint32_t offset,
	      struct sv_packet *pkt, struct sv_frag *frags)
{
	uint32_t length = pkt->payload_len;
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
		if (sv_piece(qp->port, mr, at, pkt, pkt->payload_len - length, part, &frags[n++]))
			return -EIO;
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

/* Where a packet's payload lies in host memory, or a copy of it. NULL: the wire lost it. */
static const uint8_t *payload_at(struct sv_port *port, const struct sv_packet *pkt, uint32_t from,
				 uint32_t length)
{
	uint8_t *bytes;

	if (pkt->payload)
		return (const uint8_t *)pkt->payload + from;
	bytes = stage(port, length);
	return bytes && sv_copy_payload(port, pkt, from, bytes, length) ? bytes : NULL;
}

static enum sv_copy put_in_gpu(struct sv_qp *qp, const struct sv_mr *mr, uint8_t *addr,
			       const struct sv_packet *pkt, uint32_t from, uint32_t length)
{
	const uint8_t *bytes = payload_at(qp->port, pkt, from, length);

	if (!bytes)
		return SV_COPY_LOST;
	if (sv_posted_write(qp, pkt, mr, addr, bytes, length))
		return SV_COPY_OK;
	return sv_gpu_write(mr->gpu, addr, bytes, length) ? SV_COPY_FAILED : SV_COPY_OK;
}

enum sv_copy sv_put(struct sv_qp *qp, const struct sv_mr *mr, uint64_t addr,
		    const struct sv_packet *pkt, uint32_t from, uint32_t length)
{
	if (__builtin_expect(mr->gpu && length, 0))
		return put_in_gpu(qp, mr, sv_mr_at(mr, addr), pkt, from, length);
	return sv_copy_payload(qp->port, pkt, from, sv_mr_at(mr, addr), length) ? SV_COPY_OK
										: SV_COPY_LOST;
}

enum sv_copy sv_scatter(struct sv_qp *qp, const struct sv_pd *pd, const struct ibv_sge *sge,
			uint32_t num_sge, uint32_t offset, const struct sv_packet *pkt,
			uint32_t from, uint32_t length)
{
	for (uint32_t i = 0; i < num_sge && length; i++, sge++) {
		const struct sv_mr *mr;
		enum sv_copy copied;
		uint32_t part;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		part = sge->length - offset < length ? sge->length - offset : length;
		mr = sv_mr_find(qp->port, pd, sge->lkey, sge->addr + offset, part,
				IBV_ACCESS_LOCAL_WRITE);
		if (!mr)
			return SV_COPY_PROT;
		copied = sv_put(qp, mr, sge->addr + offset, pkt, from, part);
		if (copied != SV_COPY_OK)
			return copied;
		from += part;
		length -= part;
		offset = 0;
	}
	return SV_COPY_OK;
}
