# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts of this folder share: finding and installing what is missing, configuring and
# building a preset, progress lines. Sourced, never run. Works from any directory, without a
# terminal, without stdin, and without root as long as nothing has to be installed.

HA_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
HA_START=$SECONDS
HA_JOBS=${HA_JOBS:-$(nproc 2>/dev/null || echo 2)}
export LC_ALL=C
if [ -t 0 ]; then HA_ASKS=1; else HA_ASKS=; fi # somebody is there to be asked
exec </dev/null

# ---- progress lines ---------------------------------------------------------------------------

if [ -t 1 ]; then HA_TTY=1; else HA_TTY=; fi

say() { printf '[%4ds] %s\n' $((SECONDS - HA_START)) "$*"; }
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# step TEXT LOG COMMAND...: runs a command with its output in LOG. One line when it is done; on a
# terminal the line counts the seconds meanwhile. On failure the end of LOG is shown.
HA_STEP=
step() {
	local text=$1 log=$2 began=$SECONDS rc=0
	shift 2
	mkdir -p "$(dirname "$log")"
	# In the background, as a process group of its own: a script that is told to end does so at once,
	# and ends all of it.
	set -m
	"$@" >"$log" 2>&1 &
	HA_STEP=$!
	set +m
	while [ -n "$HA_TTY" ] && kill -0 "$HA_STEP" 2>/dev/null; do
		printf '\r[%4ds] %s … %ds' $((SECONDS - HA_START)) "$text" $((SECONDS - began))
		sleep 0.2
	done
	wait "$HA_STEP" || rc=$?
	HA_STEP=
	[ -z "$HA_TTY" ] || printf '\r\033[K'
	if [ "$rc" -eq 0 ]; then
		say "$text: done in $((SECONDS - began)) s"
	else
		say "$text: FAILED after $((SECONDS - began)) s (status $rc); the end of $log:"
		tail -n 40 "$log" | sed 's/^/        /'
	fi
	return "$rc"
}

# For the exit traps of scripts.
kill_step() {
	[ -z "$HA_STEP" ] || kill -- "-$HA_STEP" 2>/dev/null
}

# ---- packages ---------------------------------------------------------------------------------

# One line each: use | Debian and Ubuntu package | Fedora package | shell probe | what for.
# A probe asks for the thing itself, not for the package, so that any origin will do. Uses: build
# (no build without it), package, wheel, test, lab and demo (needed there), extra (a test that needs it says that it
# skips).
ha_packages() {
	cat <<-'TABLE'
		build|gcc|gcc|has cc|the C compiler
		build|libc6-dev|glibc-devel|header stdio.h|the C library's headers
		build|cmake|cmake|has cmake|the build
		build|ninja-build|ninja-build|has ninja|the build
		build|libibverbs-dev|rdma-core-devel|header infiniband/verbs.h|the verbs interface
		build|libjansson-dev|jansson-devel|header jansson.h|JSON in the tools
		build|libmicrohttpd-dev|libmicrohttpd-devel|header microhttpd.h|metrics over HTTP in nccl-ha
		build|libyaml-dev|libyaml-devel|header yaml.h|topologies in nccl-ha-ctrld
		build|libcmocka-dev|libcmocka-devel|header stdarg.h stddef.h setjmp.h stdint.h cmocka.h|unit tests
		package|dpkg-dev|rpm-build|has dpkg-shlibdeps rpmbuild|making packages
		package|file|file|has file|making packages
		wheel|python3-build|python3-build|packager_module build.__main__|making wheels
		wheel|python3-setuptools|python3-setuptools|packager_module setuptools|making wheels
		wheel|python3-wheel|python3-wheel|packager_module wheel|making wheels
		wheel|python3-venv|python3|packager_module ensurepip|the test of the wheel
		apt|apt-utils|apt|has apt-ftparchive|an apt repository
		apt|gpg|gnupg2|has gpg|its signature
		apt|gpg-agent|gnupg2|has gpg-agent|its signature
		test|python3|python3|has python3|the test of scripts/gpu-bench
		test|spin|spin|has spin|the model of the failover protocol
		test|patch|patch|has patch|the code without one of its rules
		test|valgrind|valgrind|has valgrind|counting instructions per message
		test|ibverbs-utils|libibverbs-utils|has ibv_devinfo|programs the simulated fabric must run unmodified
		test|perftest|perftest|has ib_write_bw|programs the simulated fabric must run unmodified
		lab|python3|python3|has python3|the lab's program
		lab|qemu-system-x86|qemu-system-x86-core|has qemu-system-x86_64|the lab's virtual machines
		lab|busybox-static|busybox|has busybox|the first programs in a virtual machine
		lab|kmod|kmod|has depmod /sbin/depmod /usr/sbin/depmod|the modules of a virtual machine's kernel
		lab|iproute2|iproute|has rdma /sbin/rdma /usr/sbin/rdma|links and RDMA devices in a virtual machine
		lab|ibverbs-providers|libibverbs|provider rxe|the user's half of the kernel's soft RoCE
		lab|zstd|zstd|has zstd|unpacking kernels of Ubuntu
		extra|clang-14|clang|has clang-14 clang|a second compiler, and the fuzzers
		extra|tcc|tcc|has tcc|a compiler that is quick with the mutants of the model
		extra|clang-format-14|clang-tools-extra|has clang-format-14|the format check
		extra|cppcheck|cppcheck|has cppcheck|static analysis
		extra|shellcheck|ShellCheck|has shellcheck|the check of these scripts
		extra|systemtap-sdt-dev|systemtap-sdt-devel|header sys/sdt.h|probes for bpftrace, perf and gdb
		extra|gdb|gdb|has gdb|the test that a probe can be watched
		extra|rpm|rpm-build|has rpmbuild|RPMs
		extra|apt-utils|apt|has apt-ftparchive|an apt repository
		extra|gpg|gnupg2|has gpg|its signature
		extra|gpg-agent|gnupg2|has gpg-agent|its signature
		extra|pkg-config|pkgconf-pkg-config|has pkg-config|the test of what is installed
		extra|gnuplot-nox|gnuplot|has gnuplot|the check of a plot
		extra|man-db|man-db|has man|the check of manual pages
		extra|mandoc|mandoc|has mandoc|the check of manual pages
		extra|python3-yaml|python3-pyyaml|python_module yaml|the check of examples
		demo|gnuplot-nox|gnuplot|has gnuplot|the plot
	TABLE
}

# Any of these commands exists.
has() {
	local name
	for name; do command -v "$name" >/dev/null 2>&1 && return 0; done
	return 1
}

# The compiler finds these headers. Without a compiler there is nothing to ask: then the package
# manager's word counts.
header() {
	has cc && preprocessed "$@" >/dev/null
}

preprocessed() {
	printf '#include <%s>\n' "$@" | cc -E -P -dD -x c - 2>/dev/null
}

python_module() {
	python3 -c "import $1" 2>/dev/null
}

# The Python that the distribution's packages are for, whatever other one comes first on PATH.
packager_python() {
	if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi
}

# A folder of the same name is no module: our build folder is called build.
packager_module() {
	"$(packager_python)" -I -c "import $1" 2>/dev/null
}

# libibverbs knows the driver of these devices.
provider() {
	[ -e "/etc/libibverbs.d/$1.driver" ]
}

# what_is_here: the packages of the table that are there, a line each; of headers also a checksum of what the
# compiler reads, so that another version is told from the one before.
what_is_here() {
	local deb probe headers text
	while IFS='|' read -r _ deb _ probe _; do
		case $probe in
		header\ *)
			read -ra headers <<<"${probe#header }"
			text=$(has cc && preprocessed "${headers[@]}") || continue
			printf '%s %s\n' "$deb" "$(cksum <<<"$text")"
			;;
		*) ! $probe || echo "$deb" ;;
		esac
	done < <(ha_packages)
}

# look_here: $HA_HERE is what_is_here. Once in a run, since that takes a second.
look_here() {
	[ -n "${HA_HERE:-}" ] || HA_HERE=$(what_is_here)
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

apt_lists_are_fresh() {
	[ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -3 -print -quit 2>/dev/null)" ]
}

# Retries while another process holds apt's locks, for at most five minutes.
apt_get() {
	local tries rc=0
	for tries in $(seq 30); do
		rc=0
		as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
			apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" \
			>"$HA_APT_LOG.try" 2>&1 || rc=$?
		cat "$HA_APT_LOG.try"
		[ "$rc" -ne 0 ] && grep -q 'Could not get lock\|is held by process' "$HA_APT_LOG.try" || break
		echo "apt is in use by another process; attempt $tries, trying again in 10 s"
		sleep 10
	done
	rm -f "$HA_APT_LOG.try"
	return "$rc"
}

apt_install() {
	apt_lists_are_fresh || apt_get update || return
	apt_get install -y --no-install-recommends "$@" && return
	echo "trying again with fresh package lists"
	apt_get update && apt_get install -y --no-install-recommends "$@"
}

# apt_does_not_know LOG: says what to do where apt has never heard of a package.
apt_does_not_know() {
	grep -qE 'Unable to locate package|has no installation candidate' "$1" || return 0
	echo "apt does not know all of these packages. On Ubuntu many are in the component \"universe\": as root,"
	echo "    add-apt-repository universe      # or add the word to the lines of /etc/apt/sources.list"
	echo "and run this again."
}

# Whether packages may be installed: HA_INSTALL is yes, no, or ask, which without a terminal is no. Where it is not set a
# terminal is asked, and without one they are installed, as continuous integration needs it.
may_install() {
	local answer
	case ${HA_INSTALL:-} in
	yes) return 0 ;;
	no) return 1 ;;
	ask) [ "$HA_ASKS" ] || return 1 ;;
	'') [ "$HA_ASKS" ] || return 0 ;;
	*) die "HA_INSTALL is yes, no or ask, not '$HA_INSTALL'" ;;
	esac
	read -r -p "install them now? [y/N] " answer 2>/dev/tty </dev/tty || return 1
	case $answer in [yY] | [yY][eE][sS]) return 0 ;; *) return 1 ;; esac
}

# need_packages USE...: installs what is missing for these uses. Returns non-zero only if something
# other than an extra is missing afterwards.
need_packages() {
	local uses=" $* " use deb rpm probe why extra_rc=0
	local required=() extras=() fedora=() whys=()
	while IFS='|' read -r use deb rpm probe why; do
		[[ $uses == *" $use "* ]] || continue
		$probe && continue
		if [ "$use" = extra ]; then extras+=("$deb"); else required+=("$deb"); fi
		fedora+=("$rpm")
		whys+=("$(printf '%-16s %s' "$deb" "$why")")
	done < <(ha_packages)
	[ ${#whys[@]} -gt 0 ] || {
		say "packages: nothing to install"
		return 0
	}

	say "packages missing here:"
	printf '          %s\n' "${whys[@]}"
	if ! has apt-get; then
		[ ${#required[@]} -eq 0 ] && return 0
		echo "This script installs packages on Debian and Ubuntu only. On Fedora and its relatives:"
		echo "    sudo dnf install ${fedora[*]}"
		return 1
	fi
	if ! may_install; then
		echo "Nothing is installed. As root, run:"
		echo "    apt-get update && apt-get install -y --no-install-recommends ${required[*]} ${extras[*]}"
		[ ${#required[@]} -eq 0 ]
		return
	fi
	if [ "$(id -u)" -ne 0 ] && ! has sudo; then
		echo "Not root, and there is no sudo. As root, run:"
		echo "    apt-get update && apt-get install -y --no-install-recommends ${required[*]} ${extras[*]}"
		[ ${#required[@]} -eq 0 ]
		return
	fi

	HA_APT_LOG=$(mktemp "${TMPDIR:-/tmp}/nccl-ha-apt.XXXXXX")
	if [ "$(id -u)" -ne 0 ]; then
		say "installing them needs root: sudo may ask for your password"
		sudo -v </dev/tty 2>/dev/null || sudo -n true || {
			rm -f "$HA_APT_LOG"
			echo "sudo refused. As root: apt-get install -y --no-install-recommends ${required[*]} ${extras[*]}"
			[ ${#required[@]} -eq 0 ]
			return
		}
	fi
	# All at once is fastest; an extra that this release of the system lacks must not stop the rest.
	if ! step "installing $((${#required[@]} + ${#extras[@]})) packages" "$HA_APT_LOG" \
		apt_install "${required[@]}" "${extras[@]}"; then
		if [ ${#required[@]} -gt 0 ] && [ ${#extras[@]} -gt 0 ]; then
			step "installing the required ones alone" "$HA_APT_LOG" apt_install "${required[@]}" || {
				apt_does_not_know "$HA_APT_LOG"
				return 1
			}
		elif [ ${#required[@]} -gt 0 ]; then
			apt_does_not_know "$HA_APT_LOG"
			return 1
		fi
		for deb in "${extras[@]}"; do
			step "installing $deb" "$HA_APT_LOG" apt_install "$deb" || extra_rc=1
		done
		[ "$extra_rc" -eq 0 ] || say "going on: the tests that need these say that they skip"
	fi
	rm -f "$HA_APT_LOG"
}

# ---- building ---------------------------------------------------------------------------------

# preset_dir PRESET: where it builds. preset_args PRESET: the same settings as CMakePresets.json,
# for CMake before 3.21, which does not read presets of that version.
preset_dir() {
	case $1 in
	release) echo "$HA_ROOT/build" ;;
	*) echo "$HA_ROOT/build-$1" ;;
	esac
}

preset_args() {
	case $1 in
	release) echo "-DCMAKE_BUILD_TYPE=RelWithDebInfo" ;;
	debug) echo "-DCMAKE_BUILD_TYPE=Debug -DHA_INVARIANTS=ON" ;;
	explore) echo "-DCMAKE_BUILD_TYPE=RelWithDebInfo -DHA_INVARIANTS=ON" ;;
	coverage) echo "-DCMAKE_BUILD_TYPE=None -DHA_COVERAGE=ON" ;;
	asan) echo "-DCMAKE_BUILD_TYPE=RelWithDebInfo -DHA_SANITIZE=address,undefined -DHA_INVARIANTS=ON" ;;
	tsan) echo "-DCMAKE_BUILD_TYPE=RelWithDebInfo -DHA_SANITIZE=thread -DHA_INVARIANTS=ON" ;;
	clang) echo "-DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=$(clang_name)" ;;
	fuzz) echo "$(preset_args clang) -DHA_SANITIZE=address,undefined -DHA_INVARIANTS=ON -DHA_LIBFUZZER=ON" ;;
	*) die "no preset is called $1" ;;
	esac
}

clang_name() {
	local name
	for name in clang clang-14; do has "$name" && echo "$name" && return; done
	return 1
}

cmake_reads_presets() {
	local version
	version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
	[ "$(printf '%s\n3.21\n' "$version" | sort -V | head -n1)" = 3.21 ]
}

configure_preset() {
	local preset=$1 dir args
	dir=$(preset_dir "$preset")
	cd "$HA_ROOT" || return
	# A build folder that was made for another place (a moved or copied tree) cannot be reused.
	if [ -f "$dir/CMakeCache.txt" ] &&
		! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$HA_ROOT" "$dir/CMakeCache.txt"; then
		rm -rf "$dir"/{CMakeCache.txt,CMakeFiles,.ninja_deps,.ninja_log}
	fi
	# The presets say "clang"; Debian's package clang-14 alone has no program of that name.
	if cmake_reads_presets && { [[ $preset != @(clang|fuzz) ]] || has clang; }; then
		cmake --preset "$preset"
	else
		read -ra args < <(preset_args "$preset")
		cmake -S . -B "$dir" -G Ninja -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${args[@]}"
	fi
}

# build_preset PRESET [TARGET...]: configured if it must be, then built, all of it unless targets are named.
# Ninja itself sees changes of CMakeLists.txt; but CMake looks for headers and programs only when it configures,
# so a package that came or went since then is a reason, too. The log is DIR/build.log.
build_preset() {
	local preset=$1 dir targets=()
	shift
	[ $# -eq 0 ] || targets=(--target "$@")
	dir=$(preset_dir "$preset")
	look_here
	if [ ! -f "$dir/build.ninja" ] || [ "$HA_ROOT/CMakePresets.json" -nt "$dir/build.ninja" ] ||
		! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$HA_ROOT" "$dir/CMakeCache.txt" 2>/dev/null ||
		[ "$HA_HERE" != "$(cat "$dir/what-was-here" 2>/dev/null)" ]; then
		step "$preset: configure" "$dir/configure.log" configure_preset "$preset" || return
		touch "$dir/build.ninja"
		echo "$HA_HERE" >"$dir/what-was-here"
	fi
	step "$preset: build" "$dir/build.log" cmake --build "$dir" -j "$HA_JOBS" "${targets[@]}"
}
