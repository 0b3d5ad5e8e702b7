#!/usr/bin/env bash
# The list of a release, as far as a program can go through it. It publishes nothing, and ends with what is left for a person.
# usage: toolchain/release.sh [--quick]         --quick: only what needs no compiler
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
failed=0

# A line of the list: what has to be so, and a command that is true where it is.
check() {
    local what=$1
    shift
    if "$@"; then
        echo "ok      $what"
    else
        echo "FAILED  $what"
        failed=1
    fi
}
is_clean() { [ -z "$(git status --porcelain)" ]; }
has_no_tag() { ! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; }
is_in_the_lock() { "${CARGO:-cargo}" metadata --locked --offline --no-deps --format-version 1 >/dev/null; }
own_crates_agree() {
    ! grep -E '^callwright[a-z-]* = \{ version' Cargo.toml | grep -vF "version = \"$version\""
}
has_changes() { grep -qE "^## \[${version//./\\.}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}\$" CHANGELOG.md; }
says_it_is_published() {
    ! git grep -nE 'not published yet|Nothing is published yet|There is no release yet|there is no release\.' -- '*.md' toolchain/callwright.rb
}

echo "callwright $version"
check "every change is committed" is_clean
check "there is no tag v$version yet; Cargo.toml has the version" has_no_tag
check "the crates depend on one another in this version" own_crates_agree
check "Cargo.lock is up to date" is_in_the_lock
check "CHANGELOG.md has \"## [$version] - DATE\"" has_changes
check "no page says that nothing is published" says_it_is_published
if [ "${1:-}" != --quick ]; then
    check "all checks (.ci/run)" bash .ci/run
    check "the crates can be published (make packages)" make packages
    check "the archive works in an empty root (make dist)" make dist
    check "the wheel with the portable program works" toolchain/python.sh target/portable
    check "the site can be built (make docs)" make docs
fi
[ $failed = 0 ] || exit 1

cat <<TEXT

Left for a person:
  git tag -s v$version && git push origin v$version     # .github/workflows/release.yml makes a draft: archives, wheels, npm package, formula
  cargo publish -p minijinja-transformers, then callwright-core, callwright, callwright-bench and callwright-cli
  twine upload *.whl and npm publish *.tgz, with the files of the draft
  callwright.rb of the draft, into the tap
  the draft, published: then cargo binstall callwright-cli finds the archives
TEXT
