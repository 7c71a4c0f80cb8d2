# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a live job: its promtool finds nothing wrong with the page, the values it stores are
those of the job, and it evaluates every query of the dashboard and every alert. A real node_exporter passes on what
`nccl-ha metrics --textfile` has written.

Debian's packages are fetched and unpacked into the build folder, not installed: installed, they would start servers that
listen to the world."""

import glob
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

from job import BUILD, LIMIT_S, TOOL, Job, nccl_ha, text, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "..", "lab"))
import image  # noqa: E402  for fetching a package


def find_or_fetch(package, *names):
    """{name: path} of these programs of a package."""
    found = {name: shutil.which(name) for name in names}
    if all(found.values()):
        return found
    folder = os.path.join(BUILD, package)
    programs = {name: os.path.join(folder, "usr", "bin", name) for name in names}
    if all(os.path.exists(path) for path in programs.values()):
        return programs
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise image.ImageError(f"neither {package} nor apt-get is here")
    work = tempfile.mkdtemp(prefix=f"{package}.", dir=BUILD)
    try:
        apt = image.Apt(work)
        try:
            apt.get("download", package, cwd=work)
        except image.ImageError:
            apt.use_own_lists()
            apt.get("download", package, cwd=work)
        image.run(["dpkg-deb", "-x", *glob.glob(os.path.join(work, "*.deb")), os.path.join(work, "tree")], timeout=120)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(os.path.join(work, "tree"), folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return programs


def load_check():
    path = os.path.join(ROOT, "scripts", "check-dashboard")
    loader = importlib.machinery.SourceFileLoader("check_dashboard", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_dashboard", loader))
    loader.exec_module(module)
    return module


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: nccl-ha
    static_configs: [{{targets: ['{target}']}}]
"""


class Prometheus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="nccl-ha-test.")
        cls.job = cls.server = cls.prometheus = None
        try:
            cls.job = Job("--op", "allreduce", "--sizes", "64K", "-C", "2", "--seconds", "300")
            cls.job.wait_until_protected(4)
            cls.server = subprocess.Popen([TOOL, "metrics", "--listen", "0", "--job", cls.job.id],
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
            cls.target = urllib.parse.urlparse(cls.server.stdout.readline().decode().strip()).netloc
            cls.start_prometheus()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def start_prometheus(cls):
        """On a port that is free a moment before: another one is tried when it is not any more."""
        config = os.path.join(cls.dir, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(alerts=os.path.join(ROOT, "docs", "grafana", "alerts.yml"), target=cls.target))
        cls.log = open(os.path.join(cls.dir, "log"), "wb")
        for _ in range(5):
            port = free_port()
            cls.url = f"http://127.0.0.1:{port}"
            cls.prometheus = subprocess.Popen(
                [PROGRAMS["prometheus"], f"--config.file={config}", f"--storage.tsdb.path={cls.dir}/data",
                 f"--web.listen-address=127.0.0.1:{port}"],
                stdin=subprocess.DEVNULL, stdout=cls.log, stderr=subprocess.STDOUT)  # fmt: skip
            if wait_for("Prometheus", lambda: cls.prometheus.poll() is not None or cls.is_ready()) and cls.is_ready():
                return
        raise AssertionError("Prometheus does not start")

    @classmethod
    def is_ready(cls):
        try:
            return urllib.request.urlopen(cls.url + "/-/ready", timeout=5).status == 200
        except OSError:
            return False

    @classmethod
    def tearDownClass(cls):
        for process in cls.prometheus, cls.server:
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if cls.server:
            cls.server.stdout.close()
        if cls.job:
            cls.job.end()
        if hasattr(cls, "log"):
            cls.log.close()
        shutil.rmtree(cls.dir)

    def query(self, expression):
        url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            document = json.load(answer)
        self.assertEqual(document["status"], "success", expression)
        return document["data"]["result"]

    def value(self, expression):
        """Of an expression with one result; None: no result."""
        result = self.query(expression)
        self.assertLessEqual(len(result), 1, expression)
        return float(result[0]["value"][1]) if result else None

    def test_promtool_finds_nothing_to_say_about_the_page(self):
        for words in ["--job", self.job.id], ["--job", self.job.id, "--connections"], ["--job", "no-such-job"]:
            page = text("metrics", *words)
            done = subprocess.run([PROGRAMS["promtool"], "check", "metrics"], input=page.encode(), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, b""))

    def test_promtool_accepts_the_alerts(self):
        alerts = os.path.join(ROOT, "docs", "grafana", "alerts.yml")
        with open(alerts, encoding="utf-8") as file:
            written = sum(line.lstrip().startswith("- alert:") for line in file)
        done = subprocess.run([PROGRAMS["promtool"], "check", "rules", alerts],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(written, 0)
        self.assertIn(f"{written} rules found".encode(), done.stdout)

    def test_node_exporter_passes_the_health_of_ports_on(self):
        folder = os.path.join(self.dir, "textfiles")
        os.mkdir(folder)
        text("metrics", "--job", self.job.id, "--textfile", os.path.join(folder, "nccl-ha.prom"))
        for _ in range(5):  # as for Prometheus
            address = f"127.0.0.1:{free_port()}"
            exporter = subprocess.Popen(
                [PROGRAMS["prometheus-node-exporter"], "--collector.disable-defaults", "--collector.textfile",
                 f"--collector.textfile.directory={folder}", f"--web.listen-address={address}"],
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)  # fmt: skip
            try:
                page = wait_for("node_exporter", lambda: exporter.poll() is not None or self.scraped(address))
            finally:
                exporter.kill()
                exporter.wait()
            if page is not True:
                break
        self.assertIn("\nnode_textfile_scrape_error 0\n", page)
        good = [line for line in page.splitlines() if line.startswith("nccl_ha_port_health{") and line.endswith(" 1")]
        self.assertEqual(len(good), 4)  # two processes with two ports
        self.assertEqual([line for line in good if 'state="good"' not in line], [])

    @staticmethod
    def scraped(address):
        try:
            return urllib.request.urlopen(f"http://{address}/metrics", timeout=5).read().decode()
        except OSError:
            return False

    def test_the_dashboard_fits_the_page_and_what_does_not_fit_is_noticed(self):
        check, page = load_check(), text("metrics", "--job", self.job.id)
        self.assertEqual(check.check(page)[2], [])
        for old, new, problem in [
            ("nccl_ha_port_silent", "nccl_ha_port_mute", "there is no metric nccl_ha_port_silent"),
            ("nccl_ha_port_silent", "nccl_ha_port_mute", "no panel shows nccl_ha_port_mute"),
            ("TYPE nccl_ha_port_bytes_total counter", "TYPE nccl_ha_port_bytes_total gauge", "is a gauge and under rate"),
            ("TYPE nccl_ha_processes gauge", "TYPE nccl_ha_processes counter", "is a counter and not under rate"),
            ("job_id=", "jobid=", "has no label job_id"),
            ("nccl_ha_build_info", "nccl_ha_version", "NOT_SHOWN has nccl_ha_build_info, which does not exist"),
        ]:  # fmt: skip
            self.assertIn(problem, "\n".join(check.check(page.replace(old, new))[2]))

    def test_what_is_stored_is_what_the_job_does(self):
        wait_for("a scrape", lambda: self.value("up") == 1.0)
        self.assertEqual(self.value("sum(nccl_ha_job_connections_open)"), 8)
        self.assertEqual(self.value("nccl_ha_processes"), 2)
        self.assertEqual(self.value('sum(nccl_ha_connections{state="protected"})'), 8)
        self.assertEqual(self.value(f'count(nccl_ha_job_info{{job_id="{self.job.id}",program="nccl-net-perf"}})'), 2)
        wait_for("a rate of traffic", lambda: (self.value("sum(rate(nccl_ha_port_bytes_total[10s]))") or 0) > 0)
        # The rate is that of the job's own counters over the same time.
        began, before = time.monotonic(), self.total()
        time.sleep(5)
        rate = (self.total() - before) / (time.monotonic() - began)
        stored = self.value("sum(rate(nccl_ha_conn_bytes_total[5s]))")
        self.assertGreater(stored, rate / 3)
        self.assertLess(stored, rate * 3)

        before = self.value("sum(nccl_ha_conn_failovers_total)")
        self.job.simverbs("cut", "0")
        wait_for("the cut", lambda: self.value('sum(nccl_ha_connections{state="unprotected"})') == 8)
        wait_for("the silent port", lambda: self.value('sum(nccl_ha_port_silent{port="sim0:1"})') == 2)
        after = wait_for("failovers", lambda: self.value("sum(nccl_ha_conn_failovers_total)"))
        self.assertGreaterEqual(after - before, 4)
        self.assertEqual(self.value("sum(nccl_ha_conn_blackout_seconds_count)"), after)
        self.every_query_of_the_dashboard_has_a_result()
        wait_for("an alert", lambda: "NcclHaUnprotected" in [each["metric"]["alertname"] for each in self.query("ALERTS")])
        self.job.simverbs("cut", "0", "--heal")
        wait_for("protection", lambda: self.value('sum(nccl_ha_connections{state="protected"})') == 8)

    def total(self):
        status = json.loads(nccl_ha("status", "-v", "--json", "--job", self.job.id).stdout)
        return sum(c["counters"]["bytes"] for process in status["processes"] for c in process["connections"])

    def every_query_of_the_dashboard_has_a_result(self):
        check = load_check()
        with open(check.DASHBOARD, encoding="utf-8") as file:
            dashboard = json.load(file)
        n = 0
        for where, query in check.dashboard_queries(dashboard):
            if query.startswith("label_values"):
                continue
            for name, value in ("$instance", ".*"), ("$job_id", ".*"), ("$__range", "1h"):
                query = query.replace(name, value)
            result = self.query(query)
            if "nccl_ha_inc_" in query:  # of jobs that asked for all-reduces in the network, which this one did not
                self.assertEqual(result, [], f"{where}: {query}")
            else:
                self.assertTrue(result, f"{where}: no result for {query}")
            n += 1
        self.assertGreater(n, 20)


if __name__ == "__main__":
    try:
        PROGRAMS = find_or_fetch("prometheus", "prometheus", "promtool")
        PROGRAMS.update(find_or_fetch("prometheus-node-exporter", "prometheus-node-exporter"))
    except image.ImageError as why:
        print(f"SKIP: no Prometheus: {why}")
        sys.exit(77)
    unittest.main()
