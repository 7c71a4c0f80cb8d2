/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the two devices and asks everything. See probe.h. */
#include "probe.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	void (*ask)(struct probe *probe);
} groups[] = {
    {"devices", ask_devices},	  {"states", ask_states},     {"objects", ask_objects},
    {"memory", ask_memory},	  {"posting", ask_posting},   {"transfers", ask_transfers},
    {"errors", ask_errors},	  {"flushing", ask_flushing}, {"notification", ask_notification},
    {"datagrams", ask_datagrams}, {"links", ask_links},
};

static int serve(const char *device, const char *address)
{
	struct port port;

	port_open(&port, device);
	far_serve(&port, address);
	port_close(&port);
	return 0;
}

int main(int argc, char **argv)
{
	struct probe probe;
	bool known = argc == 3;

	if (argc == 4 && !strcmp(argv[1], "serve"))
		return serve(argv[2], argv[3]);
	for (size_t i = 0; argc == 4 && i < sizeof(groups) / sizeof(groups[0]); i++)
		known = known || !strcmp(argv[3], groups[i].name);
	if (!known) {
		fprintf(stderr, "usage: lab-probe DEVICE PEER-DEVICE [GROUP]\n"
				"       lab-probe serve PEER-DEVICE ADDRESS\n"
				"       lab-probe DEVICE ADDRESS:PORT [GROUP]\ngroups:");
		for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
			fprintf(stderr, " %s", groups[i].name);
		fprintf(stderr, "\n");
		return 2;
	}
	port_open(&probe.a, argv[1]);
	port_open(&probe.b, argv[2]);
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (argc == 3 || !strcmp(argv[3], groups[i].name))
			groups[i].ask(&probe);
	port_close(&probe.a);
	port_close(&probe.b);
	/* Without this line the answers are not complete. */
	printf("end of %u answers\n", answers_given());
	return 0;
}
