/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_HEADER   24u
#define RECORD_HEADER 16u
#define ETHERNET      14u
#define IPV4	      20u
#define IPV6	      40u
#define UDP	      8u

static uint32_t le32(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint16_t be16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

bool capture_open(struct capture *c, const char *path)
{
	FILE *file = fopen(path, "rb");
	long size;

	*c = (struct capture){.at = FILE_HEADER};
	if (!file)
		return false;
	if (!fseek(file, 0, SEEK_END) && (size = ftell(file)) > 0 && !fseek(file, 0, SEEK_SET)) {
		c->bytes = malloc((size_t)size);
		c->size = c->bytes ? fread(c->bytes, 1, (size_t)size, file) : 0;
	}
	fclose(file);
	return c->size >= FILE_HEADER && le32(c->bytes) == 0xa1b2c3d4u;
}

void capture_close(struct capture *c)
{
	free(c->bytes);
}

static void map_v4(union ibv_gid *gid, const uint8_t *address)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, address, 4);
}

static bool take_frame(const uint8_t *frame, size_t size, struct captured *p)
{
	const uint8_t *ip = frame + ETHERNET, *udp;

	*p = (struct captured){0};
	if (size < ETHERNET + IPV6 + UDP)
		return false;
	if (be16(frame + 12) == 0x0800 && ip[0] == 0x45 && ip[9] == 17) {
		map_v4(&p->flow.src, ip + 12);
		map_v4(&p->flow.dst, ip + 16);
		p->flow.id = be16(ip + 4);
		udp = ip + IPV4;
	} else if (be16(frame + 12) == 0x86dd && ip[6] == 17) {
		memcpy(&p->flow.src, ip + 8, 16);
		memcpy(&p->flow.dst, ip + 24, 16);
		udp = ip + IPV6;
	} else {
		return false;
	}
	p->flow.sport = be16(udp);
	p->datagram = udp + UDP;
	p->length = be16(udp + 4) - UDP;
	return be16(udp + 2) == SV_ROCE_PORT && p->datagram + p->length <= frame + size;
}

bool capture_next(struct capture *c, struct captured *packet)
{
	while (c->at + RECORD_HEADER <= c->size) {
		const uint8_t *record = c->bytes + c->at;
		size_t size = le32(record + 8);

		if (size > c->size - c->at - RECORD_HEADER)
			return false;
		c->at += RECORD_HEADER + size;
		if (take_frame(record + RECORD_HEADER, size, packet))
			return true;
	}
	return false;
}
