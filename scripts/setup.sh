#!/bin/sh
# Makes this checkout ready to run: system packages where it may install them, and .venv.
#
# Prints nothing and takes a fraction of a second when nothing is missing. Exit codes: 0 ready
# (what is missing and matters only for tests is stated), 2 no usable Python or no .venv.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."

stamp=.venv/setup-stamp

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 2
}
have() { command -v "$1" >/dev/null 2>&1; }

# True when one of the given paths exists; a pattern without a match stays as it is: no file.
exists() {
    for path; do
        if [ -e "$path" ]; then return; fi
    done
    return 1
}

# ---- what is missing -----------------------------------------------------------------------

# The path belongs in the stamp: a moved .venv still points to the old checkout.
fingerprint() { { pwd && cat pyproject.toml; } | sha256sum; }

# An install that was killed has no stamp (it is written last); after an upgrade of the system's
# Python, .venv/bin/python still starts but no longer finds its packages.
venv_is_current() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] &&
        .venv/bin/python -I -c 'import shaderloom' 2>/dev/null
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# Prints the first Python that can make a virtual environment. Debian splits ensurepip off into
# python3-venv, so that `import venv` alone says nothing.
find_python() {
    for python in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if have "$python" && is_new_enough "$python" &&
            "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

has_c_headers() { echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1; }
has_vulkan_loader() {
    exists /usr/lib/*/libvulkan.so.1 /usr/lib*/libvulkan.so.1 /usr/local/lib/libvulkan.so.1 \
        "${VULKAN_SDK:-}/lib/libvulkan.so.1"
}
# Tests want the software driver: another one may be installed on a machine without its GPU.
has_vulkan_driver() {
    [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] ||
        exists /usr/share/vulkan/icd.d/lvp_icd*.json /etc/vulkan/icd.d/lvp_icd*.json
}
has_validation_layer() {
    layer=VkLayer_khronos_validation.json
    [ -n "${VK_LAYER_PATH:-}" ] || exists /usr/share/vulkan/explicit_layer.d/$layer \
        /etc/vulkan/explicit_layer.d/$layer "${VULKAN_SDK:-}/share/vulkan/explicit_layer.d/$layer"
}
has_vulkan_headers() {
    exists /usr/include/vulkan/vulkan.h "${VULKAN_SDK:-}/include/vulkan/vulkan.h"
}

# Prints the Debian packages whose work nothing here can do; looks for the program or file that is
# needed, wherever it came from, not for the package.
missing_packages() {
    venv_is_current || find_python >/dev/null || echo python3-venv
    have gcc || echo gcc
    has_c_headers || echo libc6-dev # gcc only recommends it
    have g++ || echo g++
    have clang || echo clang
    have cmake || echo cmake
    have glslc || echo glslc
    { have spirv-opt && have spirv-val && have spirv-dis; } || echo spirv-tools
    have spirv-cross || echo spirv-cross
    has_vulkan_loader || echo libvulkan1
    has_vulkan_driver || echo mesa-vulkan-drivers
    has_validation_layer || echo vulkan-validationlayers
    has_vulkan_headers || echo libvulkan-dev
}

# ---- system packages -----------------------------------------------------------------------

# Every release has gcc: lists without it are absent, or left from sources that have changed.
has_package_lists() { [ -n "$(apt-cache madison gcc 2>/dev/null)" ]; }

# Prints those of the given packages that apt can install (all, when it has no lists to ask yet).
# An unknown name is a regular expression to apt: `g++` would list dpkg, git, gpgv.
available() {
    if ! has_package_lists; then
        printf '%s\n' "$@"
        return
    fi
    LC_ALL=C apt-cache policy "$@" 2>/dev/null | awk -v wanted=" $* " '
        /^[^ ]/ { sub(/:$/, ""); name = $0 }
        /^  Candidate: [^(]/ && index(wanted, " " name " ") { print name }'
}

# Runs apt-get with the arguments after $1 (empty, or "sudo -n"); shows its output if it fails.
run_apt() {
    as_root=$1
    shift
    # A machine that has just booted may still hold the lock for its own updates.
    if ! output=$($as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=120 "$@" </dev/null 2>&1); then
        printf '%s\n' "$output" >&2
        say "apt-get $1 failed"
        return 1
    fi
}

# Installs what it can of the given packages; without root or apt-get it leaves them.
install_packages() {
    if ! have apt-get; then return; fi
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif have sudo && sudo -n true 2>/dev/null; then
        as_root='sudo -n'
    else
        return 0
    fi
    # Only packages that this release lacks, e.g. glslc on Ubuntu 22.04: nothing to do each time.
    if [ -z "$(available "$@")" ]; then return; fi
    run_apt "$as_root" update || true # the old lists may do
    known=$(available "$@" | tr '\n' ' ')
    say "installing system packages: ${known% }"
    # shellcheck disable=SC2086 # one word for each package
    run_apt "$as_root" install -y --no-install-recommends $known || true
}

what_instead() {
    case $1 in
    glslc) echo "PyPI's glslang compiles instead" ;;
    spirv-tools) echo "PyPI's build of it is used" ;;
    *) echo 'only tests and running shaders need it' ;;
    esac
}

# Says, of packages that are still missing, how to get them and what happens without.
report_missing() {
    if ! have apt-get; then
        say "missing: what these Debian packages bring: $*"
    else
        known=$(available "$@" | tr '\n' ' ')
        # shellcheck disable=SC1091 # a file of the system
        release=$(. /etc/os-release && echo "${PRETTY_NAME:-this release}")
        for package; do
            case " $known" in
            *" $package "*) ;;
            *) say "$package: not in the apt sources of $release; $(what_instead "$package")" ;;
            esac
        done
        if [ -z "$known" ]; then return; fi
        sudo=
        as_whom=' as root'
        if have sudo; then
            sudo='sudo '
            as_whom=
        fi
        update=
        if ! has_package_lists; then update="${sudo}apt-get update && "; fi
        say "missing system packages; to install them, run$as_whom:"
        say "    $update${sudo}apt-get install --no-install-recommends ${known% }"
    fi
    case " $* " in
    *' python3-venv '*) ;; # no going on without
    *)
        say "going on without (PyPI's builds stand in for glslc and spirv-tools," \
            'only tests and running shaders need the rest)'
        ;;
    esac
}

# ---- the virtual environment ---------------------------------------------------------------

make_venv() {
    if ! python=$(find_python); then
        if have python3 && ! is_new_enough python3; then
            die "$(python3 --version) is too old: Python 3.10 or newer is needed"
        fi
        die "Python 3.10 or newer with venv and ensurepip is needed (python3-venv)"
    fi
    say "making .venv with $("$python" --version) and the packages of pyproject.toml"
    rm -rf .venv || die "cannot remove the old .venv"
    "$python" -m venv .venv || die "cannot make .venv"
    .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
        --editable '.[dev]' || die "pip could not install what pyproject.toml names"
    fingerprint >"$stamp"
}

# shellcheck disable=SC2046,SC2086 # one word for each package
main() {
    missing=$(missing_packages)
    if [ -n "$missing" ]; then
        install_packages $missing
        missing=$(missing_packages)
    fi
    if [ -n "$missing" ]; then report_missing $missing; fi
    venv_is_current || make_venv
}

main
