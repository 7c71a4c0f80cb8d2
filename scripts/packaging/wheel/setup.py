# SPDX-License-Identifier: Apache-2.0
"""The wheel: programs and a plugin that any Python 3 may carry. make.py lays out what is packed, and says version and
platform in the environment."""
import os

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

TOOLS = ["nccl-ha", "nccl-ha-agent", "nccl-ha-ctrld", "nccl-ha-switchd", "nccl-net-check", "nccl-net-perf", "simverbs"]


class Programs(Distribution):
    def has_ext_modules(self):
        return True  # belongs to a platform


class ForAnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", os.environ["HA_WHEEL_PLATFORM"]


def files_of(package):
    return [os.path.relpath(os.path.join(folder, name), package)
            for folder, _, names in os.walk(package) for name in names if not name.endswith((".py", ".pyc"))]


setup(
    name="nccl-ha",
    version=os.environ["HA_WHEEL_VERSION"],
    description="NCCL network plugin that survives the loss of a NIC, port, cable or switch",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "copyright"],
    classifiers=["Operating System :: POSIX :: Linux", "Programming Language :: Python :: 3"],
    python_requires=">=3.8",
    packages=["nccl_ha"],
    package_data={"nccl_ha": files_of("nccl_ha")},
    entry_points={"console_scripts": [f"{tool} = nccl_ha.tools:{tool.replace('-', '_')}" for tool in TOOLS]},
    distclass=Programs,
    cmdclass={"bdist_wheel": ForAnyPython},
)
