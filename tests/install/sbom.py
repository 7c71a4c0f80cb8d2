#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What packages say that they are made of is what their programs and libraries are linked with."""
import json
import os
import re
import subprocess
import sys

BUILD = sys.argv[1]
PARTS = {
    "nccl-ha": ["libnccl-net-ha.so", "libnccl-ha-ibgda.so.0", "libinccl.so.0", "bin/nccl-ha", "bin/nccl-ha-agent", "bin/nccl-ha-ctrld", 
                "bin/nccl-ha-switchd", "bin/nccl-net-check", "bin/nccl-net-perf"],
    "nccl-ha-simverbs": ["simverbs/libibverbs.so.1", "bin/simverbs"],
}
# Libraries that may be linked into a program, and how their functions' names begin.
STATIC = {"jansson": "json_object_", "yaml": "yaml_parser_", "microhttpd": "MHD_"}


def need(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def output(*command):
    return subprocess.check_output(command, text=True)


def whole(package):
    """The document, which is complete and refers to nothing that is not in it."""
    with open(os.path.join(BUILD, f"{package}.spdx.json"), encoding="utf-8") as file:
        document = json.load(file)
    need(document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0", "not SPDX 2.3")
    need(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"]), "no time")
    ids = [element["SPDXID"] for element in document["packages"]]
    need(len(set(ids)) == len(ids), f"{package}: elements twice")
    for element in document["packages"]:
        need(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", element["SPDXID"]), f"{element['SPDXID']} is no id")
        for key in ("name", "versionInfo", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"):
            need(element[key], f"{element['name']} has no {key}")
        need(element["filesAnalyzed"] is False, "files are said to be analyzed")
    relations = [(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in document["relationships"]]
    need(len(set(relations)) == len(relations), f"{package}: relations twice")
    for one, _, other in relations:
        need(one in ids + ["SPDXRef-DOCUMENT"] and other in ids, f"{one} or {other} is no element")
    return document, relations


def is_of(soname, package):
    if soname.startswith(("libc.so", "libm.so", "ld-linux")):
        return re.match(r"libc6|glibc", package)
    return re.match(r"lib([a-z]+)", soname).group(1) in package


def each_program_names_what_it_is_linked_with(package, files):
    document, relations = whole(package)
    names = {element["SPDXID"]: element["name"] for element in document["packages"]}
    top = f"SPDXRef-package-{package}"
    contained = sorted(names[other] for one, what, other in relations if (one, what) == (top, "CONTAINS"))
    need(contained == sorted(os.path.basename(file) for file in files), f"{package} contains {contained}")
    for file in files:
        path, me = os.path.join(BUILD, file), f"SPDXRef-file-{os.path.basename(file)}"
        dynamic = [names[other] for one, what, other in relations if (one, what) == (me, "DYNAMIC_LINK")]
        static = [names[other] for one, what, other in relations if (one, what) == (me, "STATIC_LINK")]
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", path))
        need(needed, f"{file} needs nothing")
        for soname in needed:
            need(any(is_of(soname, name) for name in dynamic), f"{file} needs {soname} and says {dynamic}")
        for name in dynamic:
            need(any(is_of(soname, name) for soname in needed), f"{file} says {name} and needs {needed}")
        defined = set(re.findall(r" [Tt] (\w+)$", output("nm", path), re.M))
        inside = sorted(name for name, begin in STATIC.items() if any(symbol.startswith(begin) for symbol in defined))
        need(len(static) == len(inside) and all(any(i in name for name in static) for i in inside),
             f"{file} has {inside} in it and says {static}")
    return sum("STATIC_LINK" in relation for relation in relations)


found = {package: each_program_names_what_it_is_linked_with(package, files) for package, files in PARTS.items()}
need(found["nccl-ha"] > 0, "no static library was found: the tools have jansson in them")
print(f"as linked: {found}")
