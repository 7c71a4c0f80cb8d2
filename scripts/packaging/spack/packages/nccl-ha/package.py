# SPDX-License-Identifier: Apache-2.0
from spack.package import *


class NcclHa(CMakePackage):
    """NCCL network plugin that survives the loss of a NIC, port, cable or switch: libnccl-net-ha.so, its tools, and a
    simulated RDMA fabric."""

    homepage = "https://nccl-ha.invalid"
    license("Apache-2.0")

    # Built from the tree that one is in: spack dev-build.
    version("0.1.0")

    variant("default_alias", default=False, description="Install libnccl-net.so, which NCCL loads in every job that names no plugin")

    depends_on("c", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("rdma-core")
    depends_on("jansson")
    depends_on("libmicrohttpd@0.9.73:")
    depends_on("libyaml")

    generator("ninja")
    conflicts("platform=darwin")
    conflicts("platform=windows")

    def cmake_args(self):
        return [self.define("HA_BUILD_TESTS", False), self.define_from_variant("HA_INSTALL_DEFAULT_ALIAS", "default_alias")]

    def setup_run_environment(self, env):
        # NCCL asks the loader for the plugin by its name: NCCL_NET_PLUGIN=ha.
        for folder in find_libraries("libnccl-net-ha", root=self.prefix, recursive=True).directories:
            env.prepend_path("LD_LIBRARY_PATH", folder)
