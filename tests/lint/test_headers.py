# SPDX-License-Identifier: Apache-2.0
"""scripts/headers.py on small trees: a header that declares another file's functions is found, a folder's face passes."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["SOURCES"], "scripts"))

import headers

OWN = "/* Ours. */\nstruct ring;\n\nint ring_take(struct ring *ring) __attribute__((cold));\n"
DEFINITION = "int ring_take(struct ring *ring)\n{\n\treturn take(ring) ? '\"' : 0;\n}\n"


class Headers(unittest.TestCase):
    def complaints(self, **files):
        """What is said of a tree of these files of transport/: ring_h is ring.h."""
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src", "transport"))
            for name, text in files.items():
                with open(os.path.join(root, "src", "transport", ".".join(name.rsplit("_", 1))), "w", encoding="utf-8") as f:
                    f.write(text)
            return headers.check(root)[2]

    def test_a_function_of_its_own_file_passes(self):
        self.assertEqual(self.complaints(ring_h=OWN, ring_c=DEFINITION), [])

    def test_a_function_of_another_file_is_found(self):
        self.assertEqual(self.complaints(ring_h=OWN, ring_c="", other_c=DEFINITION),
                         ["src/transport/ring.h: ring_take is defined in other.c: declare it in that file's header"])  # fmt: skip

    def test_a_function_that_nobody_defines_is_found(self):
        self.assertEqual(self.complaints(ring_h=OWN, ring_c="static " + DEFINITION),
                         ["src/transport/ring.h: ring_take is defined in no file of the folder"])  # fmt: skip

    def test_the_face_of_a_folder_declares_what_any_of_its_files_defines(self):
        self.assertEqual(self.complaints(transport_h=OWN, other_c=DEFINITION), [])

    def test_inline_functions_and_members_are_no_declarations(self):
        text = "static inline int peek(void)\n{\n\treturn look();\n}\n\nstruct ops {\n\tint (*take)(void);\n};\n"
        self.assertEqual(self.complaints(ring_h=text), [])


if __name__ == "__main__":
    unittest.main()
