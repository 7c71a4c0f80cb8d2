#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What we ship to run has no right that it does not need: the images, the Pod of docs/operations.md, the DaemonSet, the unit."""
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


def merged(base, patch):
    """As `kubectl patch` does it: lists of things with names by their names, lists of mounts by their paths."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merged(base[key], patch[key]) if key in base and key in patch else patch.get(key, base.get(key))
                for key in [*base, *(key for key in patch if key not in base)]}  # fmt: skip
    if isinstance(base, list) and patch and isinstance(patch[0], dict):
        by = "mountPath" if "mountPath" in patch[0] else "name"
        known = {item[by]: item for item in base}
        return list({**known, **{item[by]: merged(known[item[by]], item) if item[by] in known else item for item in patch}}.values())
    return patch


def jobs_of_the_examples():
    """The Job, and the same with each of the patches."""
    blocks = re.findall(r"```yaml\n(.*?)```", read("docs", "operations.md"), re.S)
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    jobs = [document for document in documents if document.get("kind") == "Job"]
    patches = [document for document in documents if "kind" not in document]
    need(len(jobs) == 1 and patches, "docs/operations.md has no Job, or no patch of it")
    return [*jobs, *(merged(jobs[0], patch) for patch in patches)]


def the_pods_example_has_only_what_it_needs():
    for job in jobs_of_the_examples():
        pod = job["spec"]["template"]["spec"]
        need(pod["securityContext"]["runAsNonRoot"] is True, "the Pod may run as root")
        need(pod["securityContext"]["runAsUser"] > 0, "the Pod runs as root")
        need(pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, "no filter for system calls")
        need(pod.get("automountServiceAccountToken") is False, "the Pod gets a token of the cluster")
        of_host = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
        for container in pod["containers"] + pod.get("initContainers", []):
            writes = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
            need(not of_host & writes, "the Pod writes into the host")
            context = container["securityContext"]
            need(context["allowPrivilegeEscalation"] is False, "programs may gain rights")
            need(context["capabilities"]["drop"] == ["ALL"], "capabilities stay")
            need(context["capabilities"].get("add", []) in ([], ["IPC_LOCK"]), "capabilities that are not needed")
        env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
        need(env["HA_NCCL_CONTROL"] == "0", "orders are taken")


def the_jobs_that_mount_the_plugin_are_told_where_it_is():
    """By an init container of their own, or of the host."""
    told = [job["spec"]["template"]["spec"] for job in jobs_of_the_examples()]
    told = [pod for pod in told if any(volume["name"] == "nccl-ha" for volume in pod["volumes"])]
    need(len(told) == 2, "not two ways to mount it")
    for pod in told:
        worker = pod["containers"][0]
        env = {entry["name"]: entry.get("value") for entry in worker["env"]}
        mount = next(mount for mount in worker["volumeMounts"] if mount["name"] == "nccl-ha")
        need(mount["readOnly"] is True, "the job may change it")
        need(env["NCCL_NET_PLUGIN"] == mount["mountPath"] + "/current/libnccl-net-ha.so", f"it looks in {env['NCCL_NET_PLUGIN']}")
        volume = next(volume for volume in pod["volumes"] if volume["name"] == "nccl-ha")
        if "hostPath" in volume:
            need(volume["hostPath"]["path"] == hosts_folder(), "the DaemonSet has it elsewhere")
            continue
        init = next(container for container in pod["initContainers"] if container["name"] == "nccl-ha")
        need(init["command"] == ["nccl-ha-install", mount["mountPath"]], "it is installed elsewhere")
        need([mount["mountPath"]] == [each["mountPath"] for each in init["volumeMounts"]], "it is installed into nothing that lasts")


def daemonset():
    documents = list(yaml.safe_load_all(read("docs", "container", "daemonset.yaml")))
    need([document["kind"] for document in documents] == ["Namespace", "DaemonSet"], "docs/container/daemonset.yaml has other things in it")
    need(documents[1]["metadata"]["namespace"] == documents[0]["metadata"]["name"], "it is in another namespace")
    return documents[1]["spec"]


def hosts_folder():
    (volume,) = daemonset()["template"]["spec"]["volumes"]
    return volume["hostPath"]["path"]


def the_daemonset_is_root_for_one_folder_while_it_installs_and_nobody_with_nothing_afterwards():
    spec = daemonset()
    pod = spec["template"]["spec"]
    need(spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(), "it does not know its Pods")
    need(pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, "no filter for system calls")
    need(pod.get("automountServiceAccountToken") is False, "the Pod gets a token of the cluster")
    need(not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")), "it is in name spaces of the host")
    (install,), (stays,) = pod["initContainers"], pod["containers"]
    for container in install, stays:
        context = container["securityContext"]
        need(context["allowPrivilegeEscalation"] is False, "programs may gain rights")
        need(context["readOnlyRootFilesystem"] is True, "its own files may be changed")
        need(context["capabilities"] == {"drop": ["ALL"]}, "capabilities stay")
        need("privileged" not in context, "it may be privileged")
        need(not container.get("ports"), "it listens")
    need(install["command"] == ["nccl-ha-install", install["volumeMounts"][0]["mountPath"]], "it is installed elsewhere")
    need(install["volumeMounts"] == [{"name": pod["volumes"][0]["name"], "mountPath": hosts_folder()}], "more is mounted, or elsewhere")
    need(stays["securityContext"]["runAsNonRoot"] is True and stays["securityContext"]["runAsUser"] > 0, "it stays root")
    need("volumeMounts" not in stays, "something is mounted in what stays")
    need(install["image"] == stays["image"], "two images")


def the_installers_image_ends_as_nobody_and_runs_nothing_to_be_built():
    lines = [line for line in read("scripts", "packaging", "image", "Dockerfile").splitlines() if line.strip() and not line.startswith("#")]
    need([line.split()[0] for line in lines] == ["ARG", "FROM", "COPY", "COPY", "USER", "CMD"], "something is run, or done after USER")
    need(lines[-2] == "USER 65534:65534", f"the image ends as {lines[-2]}")


def kubelets_folder(path, key):
    """Of a Secret: links to a folder of a date."""
    os.makedirs(os.path.join(path, "..2026_01_01"))
    with open(os.open(os.path.join(path, "..2026_01_01", "key"), os.O_WRONLY | os.O_CREAT, 0o440), "wb") as file:
        file.write(key)
    os.symlink("..2026_01_01", os.path.join(path, "..data"))
    os.symlink("..data/key", os.path.join(path, "key"))


def the_pods_key_is_copied_from_the_secrets_links_to_a_file_that_the_plugin_takes():
    pod = jobs_of_the_examples()[-1]["spec"]["template"]["spec"]
    init, worker = pod["initContainers"][0], pod["containers"][0]
    variables = {variable["name"]: variable["value"] for variable in worker["env"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    need(len(pod["containers"]) == 1 and "command" in worker, "the patch adds a container instead of changing the worker")
    for container in (init, worker):
        need({mount["name"] for mount in container["volumeMounts"]} <= set(volumes), "a volume is mounted that there is not")
    need(volumes["key"]["emptyDir"]["medium"] == "Memory", "the key is copied to a disk")
    need(not any(mount["name"] == "secret" for mount in worker["volumeMounts"]), "the worker needs no Secret")
    with tempfile.TemporaryDirectory() as root:
        key = os.urandom(32)
        for mount in init["volumeMounts"]:
            os.makedirs(root + mount["mountPath"])
        kubelets_folder(root + "/secret", key)
        command = [root + word if word.startswith("/") else word for word in init["command"]]
        subprocess.run(command, check=True)
        sys.path.insert(0, os.path.join(ROOT, "scripts"))
        sys.dont_write_bytecode = True
        from acceptlib import job_key  # noqa: PLC0415

        got = job_key.load({**variables, "HA_NCCL_JOB_KEY_FILE": root + variables["HA_NCCL_JOB_KEY_FILE"]})
        need(got == key, "the copy is another key")


def a_unit_has_one_right_and_systemd_calls_it_well_protected(name_of_unit, program, private_devices="yes"):
    text = read("scripts", "packaging", name_of_unit)
    settings = re.findall(r"^(\w+)=(.*)$", text, re.M)
    for name, value in (("DynamicUser", "yes"), ("AmbientCapabilities", "CAP_DAC_READ_SEARCH"),
                        ("CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"), ("NoNewPrivileges", "yes"),
                        ("ProtectSystem", "strict"), ("PrivateDevices", private_devices), ("DevicePolicy", "closed"), ("IPAddressDeny", "any")):
        need([v for n, v in settings if n == name] == [value], f"{name} is not {value}")
    if not shutil.which("systemd-analyze"):
        print("systemd-analyze is not installed: the unit is read only")
        return
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, name_of_unit)
        with open(unit, "w", encoding="utf-8") as file:
            file.write(text.replace(f"/usr/bin/{program}", os.path.join(BUILD, "bin", program)))
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
the_jobs_that_mount_the_plugin_are_told_where_it_is()
the_daemonset_is_root_for_one_folder_while_it_installs_and_nobody_with_nothing_afterwards()
the_installers_image_ends_as_nobody_and_runs_nothing_to_be_built()
the_pods_key_is_copied_from_the_secrets_links_to_a_file_that_the_plugin_takes()
a_unit_has_one_right_and_systemd_calls_it_well_protected("nccl-ha-metrics.service", "nccl-ha")
a_unit_has_one_right_and_systemd_calls_it_well_protected("nccl-ha-ctrld.service", "nccl-ha-ctrld")
a_unit_has_one_right_and_systemd_calls_it_well_protected("nccl-ha-switchd.service", "nccl-ha-switchd", private_devices="no")
print("images, Pods and units have what they need")
