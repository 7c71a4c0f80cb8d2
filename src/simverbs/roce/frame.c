/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet frames; see frame.h. */
#include "simverbs/roce/frame.h"

#include "simverbs/roce/bytes.h"

#include <linux/if_ether.h>
#include <netinet/in.h>
#include <string.h>

#define IPV4_BYTES    20u
#define IPV6_BYTES    40u
#define UDP_BYTES     8u
#define DONT_FRAGMENT 0x4000u
#define FRAGMENT_MASK 0x3fffu /* more of them, or not the first */

/* ---------------------------------------------------------------- writing */

/* A sum of 16-bit words in ones' complement, as IP has it; bytes in the order of the wire. Of whole
 * 32-bit words. */
static uint64_t add_words(uint64_t sum, const uint8_t *at, size_t bytes)
{
	uint32_t word;

	for (; bytes; at += 4, bytes -= 4) {
		memcpy(&word, at, sizeof(word));
		sum += word;
	}
	return sum;
}

static void put_checksum(uint8_t *at, uint64_t sum)
{
	uint16_t folded;

	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	folded = (uint16_t)~sum;
	memcpy(at, &folded, sizeof(folded));
}

/* IPv6 has no other check of the addresses; a result of 0 would say that there is none. */
static void put_udp_checksum(uint8_t *udp, const struct sv_roce_flow *flow, const uint8_t *datagram,
			     size_t length)
{
	const uint8_t protocol[4] = {0, IPPROTO_UDP};
	uint64_t sum = add_words(0, flow->src.raw, 16);

	sum = add_words(sum, flow->dst.raw, 16);
	sum = add_words(sum, protocol, sizeof(protocol));
	sum = add_words(sum, udp, UDP_BYTES) + htons((uint16_t)(UDP_BYTES + length));
	put_checksum(udp + 6, add_words(sum, datagram, length));
	if (!udp[6] && !udp[7])
		udp[6] = udp[7] = 0xff;
}

static uint8_t *put_ipv4(uint8_t *ip, const struct sv_roce_flow *flow, uint8_t traffic_class,
			 uint8_t hop_limit, size_t udp_bytes)
{
	memset(ip, 0, IPV4_BYTES);
	ip[0] = 0x45;
	ip[1] = traffic_class;
	sv_put16(ip + 2, (uint16_t)(IPV4_BYTES + udp_bytes));
	sv_put16(ip + 4, flow->id);
	sv_put16(ip + 6, DONT_FRAGMENT);
	ip[8] = hop_limit;
	ip[9] = IPPROTO_UDP;
	memcpy(ip + 12, flow->src.raw + 12, 4);
	memcpy(ip + 16, flow->dst.raw + 12, 4);
	put_checksum(ip + 10, add_words(0, ip, IPV4_BYTES));
	return ip + IPV4_BYTES;
}

static uint8_t *put_ipv6(uint8_t *ip, const struct sv_roce_flow *flow, uint8_t traffic_class,
			 uint8_t hop_limit, size_t udp_bytes)
{
	memset(ip, 0, 4);
	ip[0] = (uint8_t)(0x60 | traffic_class >> 4);
	ip[1] = (uint8_t)(traffic_class << 4);
	sv_put16(ip + 4, (uint16_t)(udp_bytes));
	ip[6] = IPPROTO_UDP;
	ip[7] = hop_limit;
	memcpy(ip + 8, flow->src.raw, 16);
	memcpy(ip + 24, flow->dst.raw, 16);
	return ip + IPV6_BYTES;
}

size_t sv_roce_frame_front(uint8_t *front, const struct sv_roce_flow *flow, uint8_t traffic_class,
			   uint8_t hop_limit, const uint8_t *datagram, size_t length)
{
	bool v4 = sv_roce_is_v4(&flow->dst);
	size_t udp_bytes = UDP_BYTES + length;
	uint8_t *at = sv_put16(front + 2 * ETH_ALEN, v4 ? ETH_P_IP : ETH_P_IPV6);

	at = v4 ? put_ipv4(at, flow, traffic_class, hop_limit, udp_bytes)
		: put_ipv6(at, flow, traffic_class, hop_limit, udp_bytes);
	at = sv_put16(at, flow->sport);
	at = sv_put16(at, SV_ROCE_PORT);
	at = sv_put16(at, (uint16_t)(udp_bytes));
	at = sv_put16(at, 0); /* no checksum over IPv4: the ICRC is better */
	if (!v4)
		put_udp_checksum(at - UDP_BYTES, flow, datagram, length);
	return (size_t)(at - front);
}

/* ---------------------------------------------------------------- reading */

/* What the IP headers take; 0: this is no whole UDP packet. */
static size_t take_ipv4(const uint8_t *ip, size_t length, struct sv_roce_flow *flow)
{
	size_t header;

	if (length < IPV4_BYTES || ip[0] >> 4 != 4 || ip[9] != IPPROTO_UDP ||
	    sv_get16(ip + 6) & FRAGMENT_MASK)
		return 0;
	header = (size_t)(ip[0] & 0xf) * 4;
	sv_map_v4(&flow->src, ip + 12);
	sv_map_v4(&flow->dst, ip + 16);
	flow->id = sv_get16(ip + 4);
	return header < IPV4_BYTES ? 0 : header;
}

static size_t take_ipv6(const uint8_t *ip, size_t length, struct sv_roce_flow *flow)
{
	if (length < IPV6_BYTES || ip[0] >> 4 != 6 || ip[6] != IPPROTO_UDP)
		return 0;
	memcpy(flow->src.raw, ip + 8, 16);
	memcpy(flow->dst.raw, ip + 24, 16);
	return IPV6_BYTES;
}

bool sv_roce_frame_take(const uint8_t *frame, size_t length, struct sv_roce_flow *flow,
			const uint8_t **datagram, size_t *datagram_length)
{
	const uint8_t *ip = frame + ETH_HLEN, *udp;
	size_t header, left, udp_bytes;
	uint16_t type;

	*flow = (struct sv_roce_flow){0};
	if (length < ETH_HLEN)
		return false;
	left = length - ETH_HLEN;
	type = sv_get16(frame + 2 * ETH_ALEN);
	header = type == ETH_P_IP     ? take_ipv4(ip, left, flow)
		 : type == ETH_P_IPV6 ? take_ipv6(ip, left, flow)
				      : 0;
	if (!header || left < header + UDP_BYTES)
		return false;
	udp = ip + header;
	left -= header;
	udp_bytes = sv_get16(udp + 4);
	flow->sport = sv_get16(udp);
	*datagram = udp + UDP_BYTES;
	*datagram_length = udp_bytes < UDP_BYTES || udp_bytes > left ? 0 : udp_bytes - UDP_BYTES;
	return sv_get16(udp + 2) == SV_ROCE_PORT;
}
