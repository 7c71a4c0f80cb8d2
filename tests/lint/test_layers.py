# SPDX-License-Identifier: Apache-2.0
"""scripts/layers.py on small trees: one that is in order passes, and each thing that can be wrong with
one is complained of, with the file and line."""

import contextlib
import io
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.join(os.environ["SOURCES"], "scripts"))

import layers

TABLE = """\
# from the ground
base:
transport: base
tools: base
tools/fabric: base tools
"""
PICTURE = """\
digraph g { // ghost [label="a comment"];
	base [label="base"];
	transport [label="transport"];
	subgraph cluster { "tools" [label="tools"]; }
}
"""
WORDS = [
    "path", "slot", "generation", "epoch", "fence", "probe", "token", "standby", "detector", "session",
    "window", "stamp", "replay", "cookie", "control socket",
]  # fmt: skip
PAGE = """\
# Architecture

## Words

| word | what |
|---|---|
{words}
## Parts

`src/base`, `src/transport` and `src/tools`; `include/public.h`, `base/log.h`, `comm.[ch]`.

`src/transport`, file by file:

| file | idea |
|---|---|
| `comm.[ch]` | one end, see `log.h` |
"""


def good_tree():
    page = PAGE.format(words="".join(f"| **{word}** | what it is |\n" for word in WORDS))
    return {
        "scripts/layers.txt": TABLE,
        "docs/img/architecture.dot": PICTURE,
        "docs/architecture.md": page,
        "docs/code-walk.md": "| 1 | `transport/comm.c` | `ha_isend` | waits for `no_one` |\n",
        "include/public.h": "#include <stdint.h>\n",
        "src/base/log.h": "/* " + " ".join(WORDS[:-1]) + " */\n",
        "src/transport/comm.h": '#include "base/log.h"\n#include "public.h"\n',
        "src/transport/comm.c": '#include "transport/comm.h"\n#include "comm.h"\n#include <stdio.h>\nint ha_isend, no_one;\n',
        "src/tools/main.c": '#include "base/log.h"\nint control_socket;\n',
        "src/tools/fabric/up.c": '#include "tools/main.h"\n',
        "src/tools/main.h": "\n",
    }


def run(files, check):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                f.write(text)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = layers.main([check, "--root", root])
            except SystemExit as end:
                status = end.code
        return types.SimpleNamespace(returncode=status, stdout=out.getvalue(), stderr=err.getvalue())


class Check(unittest.TestCase):
    def setUp(self):
        self.files = good_tree()

    def passes(self, check="layers"):
        done = run(self.files, check)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def complains(self, of, check="layers"):
        """Exactly one complaint, and it is this one."""
        done = run(self.files, check)
        self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
        self.assertEqual(done.stdout.splitlines(), [of])


class Layers(Check):
    def test_a_tree_in_order_passes(self):
        self.assertEqual(self.passes(), "layers: 3 folders, 7 files, 6 includes\n")

    def test_a_room_above_is_refused(self):
        self.files["src/base/log.c"] = '/* up */\n\n#include "transport/comm.h"\n'
        self.complains("src/base/log.c:3: base may not include src/transport/comm.h (scripts/layers.txt)")

    def test_nor_may_it_come_in_angle_brackets(self):
        self.files["src/base/log.h"] = "#  include <transport/comm.h>\n"
        self.complains("src/base/log.h:1: base may not include src/transport/comm.h (scripts/layers.txt)")

    def test_nor_by_a_way_around(self):
        self.files["src/base/log.h"] = '#include "../transport/comm.h"\n'
        self.complains("src/base/log.h:1: base may not include src/transport/comm.h (scripts/layers.txt)")

    def test_a_room_beside_is_refused(self):
        self.files["src/tools/main.c"] = '#include "transport/comm.h"\n'
        self.complains("src/tools/main.c:1: tools may not include src/transport/comm.h (scripts/layers.txt)")

    def test_a_folder_in_a_folder_has_its_own_line(self):
        self.files["src/tools/main.h"] = '#include "tools/fabric/up.h"\n'
        self.files["src/tools/fabric/up.h"] = "\n"
        self.complains("src/tools/main.h:1: tools may not include src/tools/fabric/up.h (scripts/layers.txt)")

    def test_public_headers_include_nothing_of_ours(self):
        self.files["include/public.h"] = '#include "base/log.h"\n'
        self.complains("include/public.h:1: include may not include src/base/log.h (scripts/layers.txt)")

    def test_a_header_that_is_not_there(self):
        self.files["src/base/log.c"] = '#include "base/gone.h"\n'
        self.complains("src/base/log.c:1: no such header: base/gone.h")

    def test_a_folder_without_a_line(self):
        self.files["scripts/layers.txt"] = TABLE.replace("transport: base\n", "")
        for name in ("src/transport/comm.h", "src/transport/comm.c", "docs/code-walk.md"):
            self.files[name] = ""
        self.complains("scripts/layers.txt:1: src/transport has no line")

    def test_a_line_without_a_folder(self):
        self.files["scripts/layers.txt"] = TABLE + "ghost: base\n"
        self.complains("scripts/layers.txt:6: src/ghost is no folder: take the line out")

    def test_a_line_that_points_down_the_page(self):
        self.files["scripts/layers.txt"] = TABLE.replace("base:", "base: tools")
        self.complains("scripts/layers.txt:2: tools is on no line above this one")

    def test_a_line_for_two_folders(self):
        self.files["scripts/layers.txt"] = TABLE + "base tools: transport\n"
        self.complains('scripts/layers.txt:6: a line is "folder: folders it may include"')

    def test_two_lines_for_a_folder(self):
        self.files["scripts/layers.txt"] = TABLE + "base: tools\n"
        self.complains("scripts/layers.txt:6: base has a line already")

    def test_a_table_that_is_not_there(self):
        del self.files["scripts/layers.txt"]
        self.assertIn("scripts/layers.txt:1: no such file", run(self.files, "layers").stdout)

    def test_the_picture_has_all_folders(self):
        self.files["docs/img/architecture.dot"] = PICTURE.replace("transport [", "transprot [")
        self.complains("docs/img/architecture.dot:1: the picture has no node transport for src/transport")

    def test_the_page_has_all_folders(self):
        page = self.files["docs/architecture.md"]
        self.files["docs/architecture.md"] = page.replace("`src/tools`", "tools")
        self.complains("docs/architecture.md:1: the page does not name `src/tools`")

    def test_a_file_that_the_page_makes_up(self):
        self.files["docs/architecture.md"] += "\nMore in `base/ghost.h`.\n"
        line = self.files["docs/architecture.md"].count("\n")
        self.complains(f"docs/architecture.md:{line}: no such file: base/ghost.h")

    def test_half_of_a_pair_is_missing(self):
        del self.files["src/transport/comm.c"], self.files["docs/code-walk.md"]
        done = run(self.files, "layers")
        self.assertIn("no such file: src/transport/comm.c\n", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_a_file_in_the_table_of_another_folder(self):
        self.files["docs/architecture.md"] += "| `log.h` | moved away |\n"
        line = self.files["docs/architecture.md"].count("\n")
        self.complains(f"docs/architecture.md:{line}: no such file: src/transport/log.h")

    def test_a_walk_by_a_file_that_is_gone(self):
        self.files["docs/code-walk.md"] += "\n`base/ghost.c`\n"
        self.complains("docs/code-walk.md:3: no such file: src/base/ghost.c")

    def test_a_walk_by_a_function_that_is_gone(self):
        self.files["docs/code-walk.md"] += "`ha_isent`\n"
        self.complains("docs/code-walk.md:2: ha_isent is in no file of src/")

    def test_no_sources_at_all(self):
        done = run({"docs/architecture.md": ""}, "layers")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no src/ in it", done.stderr)


class Glossary(Check):
    def test_a_tree_in_order_passes(self):
        self.assertEqual(self.passes("glossary"), "glossary: 15 words of the source\n")

    def test_a_word_that_nobody_uses(self):
        self.files["src/tools/main.c"] = ""
        self.complains('docs/architecture.md:21: "control socket" is in no file of src/', "glossary")

    def test_too_few_words(self):
        page = self.files["docs/architecture.md"]
        self.files["docs/architecture.md"] = page.replace("| **slot** | what it is |\n", "")
        self.complains(
            'docs/architecture.md:1: the table below "## Words" has 14 words, 15 are wanted', "glossary"
        )  # fmt: skip

    def test_no_glossary(self):
        page = self.files["docs/architecture.md"]
        self.files["docs/architecture.md"] = page.replace("## Words", "## Parts of speech")
        self.complains('docs/architecture.md:1: the table below "## Words" has 0 words, 15 are wanted', "glossary")


if __name__ == "__main__":
    unittest.main()
