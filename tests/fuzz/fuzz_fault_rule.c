/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as fault rules: adding ends, says why when it refuses and leaves nothing behind then;
 * and rules that were taken can be matched against packets and removed.
 */
#include "fuzz.h"
#include "simverbs/fault_names.h"

#include "simverbs/fault.h"

#include <stdlib.h>
#include <string.h>

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("drop host=0 rail=1 op=write nth=5 count=3"),
    FUZZ_TEXT("delay=20ms prob=0.01 seed=7\ndup=3 dir=rx # comment\n\nreorder=2 every=4"),
    FUZZ_TEXT("delay=0ms jitter=2ms dist=exp seed=7\nhold at=1us until=2ms host=1"),
    FUZZ_TEXT("dropack peer=1;corrupt part=middle minlen=1 maxlen=4096"),
    FUZZ_TEXT("errno=ENOMEM verb=create_qp nth=3"),
    FUZZ_TEXT("wait=20s verb=modify_qp host=0 rail=0 at=1ns\nwait=1ms verb=rtr every=2"),
    FUZZ_TEXT("wc=RETRY_EXC_ERR qpn=0x8012 op=send|write sent=0"),
    FUZZ_TEXT("unordered=20us qpn=7 prob=0.5\nunordered peer=1 part=last"),
    FUZZ_TEXT("link=down host=1 rail=0 at=2s for=500ms period=1s count=9"),
    FUZZ_TEXT("link=off host=0 rail=1 at=1s for=2s"),
    FUZZ_TEXT("bond=remap leg=1 host=0 rail=1 at=1s for=2s"),
    FUZZ_TEXT("drop leg=0 op=ud"),
    FUZZ_TEXT("kill=unplaced host=1 op=write nth=10"),
    FUZZ_TEXT(
	"disassociate at=1ns host=0 rail=0 for=5ms\ndisassociate=20ms nth=2\nfeign=1s op=ack"),
    FUZZ_TEXT("link=down host=0 rail=1 port=2 at=1ms\ndrop port=1 op=write"),
    FUZZ_TEXT("event=GID_CHANGE at=1us until=1ms host=0 rail=0"),
    FUZZ_TEXT("unreachable=silent host=0 nth=2"),
    FUZZ_TEXT("wedge=hard op=ack|rnr|nak\nerr=silent dir=rx\nslow=1e3\ncut at=1ns rail=0\nrevive "
	      "heal\nrevive=renamed "
	      "at=1ms"),
    {NULL, 0},
};

static void match(struct sv_fault_table *table)
{
	const struct sv_fault_where where = {.peer = 1};
	struct sv_fault_verdict verdict;

	for (uint8_t op = 0; op < SV_OP_COUNT; op++) {
		struct sv_packet pkt = {.op = op, .flags = SV_PKT_FIRST, .payload_len = op * 100u};

		sv_fault_packet(table, op % 2 ? SV_DIR_TX : SV_DIR_RX, &where, &pkt, op, &verdict);
		sv_fault_wr(table, &where, 2, op, 100, op % 2, op);
	}
	for (uint32_t verb = 0; verb < SV_VERB_COUNT; verb++) {
		FUZZ_CHECK(sv_fault_verb(table, (enum sv_verb)verb, 0, 0, verb) >= 0);
		if (sv_fault_verb_wait_ns(table, (enum sv_verb)verb, 0, 0, verb))
			FUZZ_CHECK(sv_verb_is_command((enum sv_verb)verb));
	}
	for (int i = 0; i < 100 && sv_fault_due(table, 1000000, &verdict); i++)
		FUZZ_CHECK(verdict.kinds != 0);
	for (uint32_t i = 0; i < table->nrules; i++)
		FUZZ_CHECK(table->rules[i].fired <= table->rules[i].count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sv_fault_table table;
	char *text, err[300] = "";
	int id;

	/* "@…" is the name of a file to read. */
	if (size && data[0] == '@')
		return 0;
	text = malloc(size + 1);
	memcpy(text, data, size);
	text[size] = '\0';
	sv_fault_table_init(&table, 1);
	id = sv_fault_add_text(&table, text, err, sizeof(err));
	if (id < 0) {
		FUZZ_CHECK(err[0] != '\0');
		FUZZ_CHECK(table.nrules == 0 && table.points == 0);
	} else {
		FUZZ_CHECK(id == 0 && table.nrules > 0 && table.points != 0);
		match(&table);
		FUZZ_CHECK(sv_fault_remove(&table, -1) == 0 && table.points == 0);
	}
	free(text);
	return 0;
}
