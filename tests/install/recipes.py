#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recipes.py BUILD SOURCE: the recipes for Spack and EasyBuild say what the build says. They are read with stand-ins for the
words of both; neither program is needed, and neither builds anything. What real ones made of them: docs/operations.md."""
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest

BUILD, SOURCE = sys.argv[1:3]
PACKAGING = os.path.join(SOURCE, "scripts", "packaging")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


RELEASE = re.search(r"^project\(nccl-ha VERSION ([\d.]+)", read(SOURCE, "CMakeLists.txt"), re.M).group(1)
CACHE = dict(re.findall(r"^(\w+):\w+=(.*)$", read(BUILD, "CMakeCache.txt"), re.M))


class Said:
    """Notes each word of Spack that a recipe uses."""

    def __init__(self):
        self.words = {}

    def __getattr__(self, word):
        def note(*args, **more):
            self.words.setdefault(word, []).append((args, more))

        return note


def spack_recipe():
    said = Said()

    class CMakePackage:
        spec_variants = {"default_alias": True}

        def define(self, name, value):
            return f"-D{name}:BOOL={'ON' if value else 'OFF'}"

        def define_from_variant(self, name, variant):
            return self.define(name, self.spec_variants[variant])

    module = types.ModuleType("spack.package")
    module.CMakePackage = CMakePackage
    for word in ("license", "version", "variant", "depends_on", "generator", "conflicts"):
        setattr(module, word, getattr(said, word))
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": module})
    names = {}
    path = os.path.join(PACKAGING, "spack", "packages", "nccl-ha", "package.py")
    exec(compile(read(path), path, "exec"), names)
    return names["NcclHa"], said.words


def easybuild_recipe():
    names = {"SYSTEM": {"name": "system", "version": "system"}, "SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz"}
    path = os.path.join(PACKAGING, "easybuild", f"nccl-ha-{RELEASE}.eb")
    exec(compile(read(path), path, "exec"), names)
    return names


class Recipes(unittest.TestCase):
    def expect_options(self, words):
        """Options that this build has, too."""
        for name in re.findall(r"-D(\w+)", " ".join(words)):
            self.assertIn(name, CACHE)

    def test_spack_builds_this_release_with_options_that_there_are(self):
        recipe, words = spack_recipe()
        self.assertEqual(words["version"], [((RELEASE,), {})])
        arguments = recipe().cmake_args()
        self.expect_options(arguments)
        self.assertIn("-DHA_BUILD_TESTS:BOOL=OFF", arguments)
        self.assertIn("-DHA_INSTALL_DEFAULT_ALIAS:BOOL=ON", arguments)
        variants = [args[0] for args, _ in words["variant"]]
        self.assertEqual(sorted(variants), sorted(recipe.spec_variants))

    def test_spack_asks_for_what_the_build_looks_for(self):
        _, words = spack_recipe()
        wanted = {re.match(r"[\w-]+", args[0]).group() for args, _ in words["depends_on"]}
        self.assertEqual(wanted, {"c", "cmake", "ninja", "rdma-core", "jansson", "libmicrohttpd", "libyaml"})
        least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", read(SOURCE, "CMakeLists.txt")).group(1)
        self.assertIn(f"cmake@{least}:", [args[0] for args, _ in words["depends_on"]])
        self.assertIn("namespace: nccl_ha", read(PACKAGING, "spack", "repo.yaml"))

    def test_easybuild_builds_this_release_with_options_that_there_are(self):
        recipe = easybuild_recipe()
        self.assertEqual((recipe["name"], recipe["version"]), ("nccl-ha", RELEASE))
        self.expect_options([recipe["configopts"]])
        recipes = [name for name in os.listdir(os.path.join(PACKAGING, "easybuild")) if name.endswith(".eb")]
        self.assertEqual(recipes, [f"nccl-ha-{RELEASE}.eb"])

    def test_easybuild_looks_for_what_is_installed(self):
        recipe = easybuild_recipe()
        with tempfile.TemporaryDirectory() as root:
            subprocess.run(["cmake", "--install", BUILD, "--prefix", root], check=True, stdout=subprocess.DEVNULL)
            libraries = os.path.join(root, CACHE["CMAKE_INSTALL_LIBDIR"])
            for kind, there in (("files", os.path.isfile), ("dirs", os.path.isdir)):
                for path in recipe["sanity_check_paths"][kind]:
                    place = os.path.join(libraries, path[4:]) if path.startswith("lib/") else os.path.join(root, path)
                    self.assertTrue(there(place), path)
            program, *arguments = recipe["sanity_check_commands"][0].split()
            subprocess.run([os.path.join(root, "bin", program), *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
