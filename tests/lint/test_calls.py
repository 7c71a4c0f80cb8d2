# SPDX-License-Identifier: Apache-2.0
"""scripts/calls.py on small trees: circles are found through names, tables of operations, members and tables of
handlers, and what is no circle passes."""

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["SOURCES"], "scripts"))

import calls

REPORTS = """\
struct ops;

void path_fails(struct comm *comm)
{
	comm->ops->path_failed(comm);
}
"""
DECIDES = """\
static void path_failed(struct comm *comm)
{
	%s;
}

const struct comm_ops engine = {
	.path_failed = path_failed,
};
"""


class Circles(unittest.TestCase):
    def circles(self, **files):
        """Names of the functions in each circle of a tree of these files of transport/."""
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src", "transport"))
            for name, text in files.items():
                with open(os.path.join(root, "src", "transport", f"{name}.c"), "w", encoding="utf-8") as file:
                    file.write(text)
            return [[name for _, name in circle] for circle in calls.Calls(root).circles()]

    def test_a_report_that_comes_back_is_one(self):
        self.assertEqual(self.circles(reports=REPORTS, decides=DECIDES % "note(comm)"), [])
        self.assertEqual(self.circles(reports=REPORTS, decides=DECIDES % "path_fails(comm)"),
                         [["path_fails", "path_failed"]])  # fmt: skip

    def test_what_only_looks_like_a_call_is_none(self):
        for text in ('say("path_fails(comm)")', "/* path_fails(comm) */ note(comm)", "other->path_failed(comm)"):
            self.assertEqual(self.circles(reports=REPORTS, decides=DECIDES % text), [], text)

    def test_names_of_two_files_are_not_confused(self):
        one = "static void help(void)\n{\n\tdone();\n}\n\nvoid start(void)\n{\n\thelp();\n}\n"
        two = "static void help(void)\n{\n\tstart();\n}\n\nvoid begin(void)\n{\n\thelp();\n}\n"
        self.assertEqual(self.circles(one=one, two=two), [])
        self.assertEqual(self.circles(one=one.replace("done", "begin"), two=two),
                         [["begin", "start", "help", "help"]])  # fmt: skip

    def test_callbacks_are_calls_but_the_end_of_a_command(self):
        text = "void go(struct x *x)\n{\n\tx->%s(x);\n}\n\nvoid back(struct x *x)\n{\n\tx->%s = back;\n\tgo(x);\n}\n"
        self.assertEqual(self.circles(x=text % ("let_go", "let_go")), [["back", "go"]])
        self.assertEqual(self.circles(x=text % ("abandoned", "abandoned")), [])

    def test_handlers_in_a_table_are_called_by_who_steps(self):
        text = (
            "static void failed(struct comm *comm)\n{\n\t%s(comm, 0);\n}\n\n"
            "static const handler sender[2][3] = {\n\t[0] = {failed},\n};\n\n"
            "void step(struct comm *comm, int on)\n{\n\thandler handle = sender[0][on];\n\n\t(handle ? handle : none)(comm);\n}\n"
        )
        self.assertEqual(self.circles(fsm=text % "note"), [])
        self.assertEqual(self.circles(fsm=text % "step"), [["step", "failed"]])

    def test_a_function_that_calls_itself_is_none(self):
        self.assertEqual(self.circles(x="int below(int n)\n{\n\treturn n ? below(n - 1) : 0;\n}\n"), [])


class Program(unittest.TestCase):
    def test_a_tree_without_functions_is_no_proof(self):
        with tempfile.TemporaryDirectory() as root, self.assertRaisesRegex(SystemExit, "no function"):
            with contextlib.redirect_stdout(io.StringIO()):
                calls.main(["--root", root])


if __name__ == "__main__":
    unittest.main()
