#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What we ship to run has no right that it does not need: the image, the Pod of docs/operations.md, the unit."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("SKIP: python3's yaml is not installed (package python3-yaml)")
    sys.exit(77)

BUILD, ROOT = sys.argv[1:3]


def need(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def the_image_ends_as_another_user_than_root_and_without_the_simulator():
    lines = re.sub(r"\\\n", " ", read("docs", "container", "Dockerfile")).splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    stages = [i for i, line in enumerate(lines) if line.startswith("FROM ")]
    need(len(stages) >= 3, "the Dockerfile has no stages for building and checking")
    checks, final = lines[stages[-2]:stages[-1]], lines[stages[-1]:]
    users = [line.split()[1] for line in final if line.startswith("USER ")]
    need(users[-1] == "${RUN_AS}", f"the image ends as {users[-1]}")
    default = next(line.split("=")[1] for line in lines if line.startswith("ARG RUN_AS="))
    need(default.split(":")[0].isdigit() and int(default.split(":")[0]) > 0, f"by default as {default}")
    need(not any(line.startswith(("RUN ", "COPY ")) for line in final[final.index("USER ${RUN_AS}"):]),
         "something is done after the user is given back")
    need(not any("simverbs" in line or "/packages" in line for line in final), "the simulator is in the image")
    need(any("nccl-net-check" in line and "--simverbs" in line for line in checks), "nothing is checked")
    checked = re.search(r"COPY --from=(\w+)", "\n".join(final)).group(1)
    need(lines[stages[-2]].endswith(f" AS {checked}"), "what is installed is not what was checked")


def the_pods_example_has_only_what_it_needs():
    blocks = re.findall(r"```yaml\n(.*?)```", read("docs", "operations.md"), re.S)
    jobs = [document for block in blocks for document in yaml.safe_load_all(block) if document.get("kind") == "Job"]
    need(jobs, "docs/operations.md has no Job")
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        need(pod["securityContext"]["runAsNonRoot"] is True, "the Pod may run as root")
        need(pod["securityContext"]["runAsUser"] > 0, "the Pod runs as root")
        need(pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, "no filter for system calls")
        need(pod.get("automountServiceAccountToken") is False, "the Pod gets a token of the cluster")
        need(not any("hostPath" in volume for volume in pod["volumes"]), "the Pod writes into the host")
        for container in pod["containers"] + pod.get("initContainers", []):
            context = container["securityContext"]
            need(context["allowPrivilegeEscalation"] is False, "programs may gain rights")
            need(context["capabilities"]["drop"] == ["ALL"], "capabilities stay")
            need(context["capabilities"].get("add", []) in ([], ["IPC_LOCK"]), "capabilities that are not needed")
        env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
        need(env["HA_NCCL_CONTROL"] == "0", "orders are taken")


def the_unit_has_one_right_and_systemd_calls_it_well_protected():
    text = read("scripts", "packaging", "nccl-ha-metrics.service")
    settings = re.findall(r"^(\w+)=(.*)$", text, re.M)
    for name, value in (("DynamicUser", "yes"), ("AmbientCapabilities", "CAP_DAC_READ_SEARCH"),
                        ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"), ("NoNewPrivileges", "yes"),
                        ("ProtectSystem", "strict"), ("PrivateDevices", "yes"), ("IPAddressDeny", "any")):
        need([v for n, v in settings if n == name] == [value], f"{name} is not {value}")
    if not shutil.which("systemd-analyze"):
        print("systemd-analyze is not installed: the unit is read only")
        return
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "nccl-ha-metrics.service")
        with open(unit, "w", encoding="utf-8") as file:
            file.write(text.replace("/usr/bin/nccl-ha", os.path.join(BUILD, "bin", "nccl-ha")))
        run = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        need(run.returncode == 0 and not run.stdout.strip(), f"systemd-analyze verify: {run.stdout}")
        version = int(subprocess.check_output(["systemd-analyze", "--version"], text=True).split()[1])
        if version >= 250:  # the first that looks at files
            run = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit], text=True,
                                 check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            need(run.returncode == 0, f"systemd-analyze security: {run.stdout}")


the_image_ends_as_another_user_than_root_and_without_the_simulator()
the_pods_example_has_only_what_it_needs()
the_unit_has_one_right_and_systemd_calls_it_well_protected()
print("image, Pod and unit have what they need")
