/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_HEADER   24u
#define RECORD_HEADER 16u

static uint32_t le32(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
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

bool capture_next(struct capture *c, struct captured *packet)
{
	while (c->at + RECORD_HEADER <= c->size) {
		const uint8_t *record = c->bytes + c->at;
		size_t size = le32(record + 8);

		if (size > c->size - c->at - RECORD_HEADER)
			return false;
		c->at += RECORD_HEADER + size;
		packet->frame = record + RECORD_HEADER;
		packet->frame_bytes = size;
		if (sv_roce_frame_take(packet->frame, size, &packet->flow, &packet->datagram,
				       &packet->length))
			return true;
	}
	return false;
}
