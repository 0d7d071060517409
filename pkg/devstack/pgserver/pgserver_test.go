package pgserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) { // not parallel: it sets the environment
	t.Run("TakesTheFolderThatIsNamed", func(t *testing.T) {
		t.Setenv(EnvBin, fakeInstallation(t, "postgres (PostgreSQL) 16.4 (Debian 16.4-1)"))
		found, err := Find(t.Context(), io.Discard)
		require.NoError(t, err)
		require.Equal(t, Binaries{Dir: os.Getenv(EnvBin), Major: 16}, found)
	})
	t.Run("RefusesAnOldOne", func(t *testing.T) {
		t.Setenv(EnvBin, fakeInstallation(t, "postgres (PostgreSQL) 14.1"))
		_, err := Find(t.Context(), io.Discard)
		require.ErrorContains(t, err, "Postgres 14 is too old")
	})
	t.Run("RefusesAFolderWithoutIt", func(t *testing.T) {
		t.Setenv(EnvBin, t.TempDir())
		_, err := Find(t.Context(), io.Discard)
		require.ErrorContains(t, err, EnvBin+"="+os.Getenv(EnvBin))
	})
}

func fakeInstallation(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+version+"'\n"), 0o755))
	}
	return dir
}

func TestUnpack(t *testing.T) {
	t.Parallel()

	t.Run("RestoresSymlinks", func(t *testing.T) {
		t.Parallel()
		path, sum := archive(t, map[string]string{
			"package/native/lib/libpq.so.5.17": "library",
			"package/native/pg-symlinks.json":  `[{"source": "native/lib/libpq.so.5.17", "target": "native/lib/libpq.so.5"}]`,
		})
		dir := filepath.Join(t.TempDir(), "out")
		require.NoError(t, unpack(path, sum, dir))
		require.NoError(t, restoreSymlinks(dir))
		body, err := os.ReadFile(filepath.Join(dir, "native/lib/libpq.so.5"))
		require.NoError(t, err)
		require.Equal(t, "library", string(body))
	})
	t.Run("RefusesOtherBytes", func(t *testing.T) {
		t.Parallel()
		path, _ := archive(t, map[string]string{"package/native/bin/postgres": "changed"})
		dir := filepath.Join(t.TempDir(), "out")
		require.ErrorContains(t, unpack(path, packages["amd64"].integrity, dir), "checksum")
		require.NoDirExists(t, dir)
	})
	t.Run("StaysInItsFolder", func(t *testing.T) {
		t.Parallel()
		path, sum := archive(t, map[string]string{"package/../../outside": "x"})
		parent := t.TempDir()
		require.Error(t, unpack(path, sum, filepath.Join(parent, "out", "deep")))
		require.NoFileExists(t, filepath.Join(parent, "outside"))
	})
}

func archive(t *testing.T, files map[string]string) (path, sum string) {
	t.Helper()
	var body bytes.Buffer
	zipped := gzip.NewWriter(&body)
	entries := tar.NewWriter(zipped)
	for name, content := range files {
		require.NoError(t, entries.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := entries.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, entries.Close())
	require.NoError(t, zipped.Close())
	path = filepath.Join(t.TempDir(), "package.tgz")
	require.NoError(t, os.WriteFile(path, body.Bytes(), 0o600))
	hash := sha512.Sum512(body.Bytes())
	return path, base64.StdEncoding.EncodeToString(hash[:])
}

func TestInitRefusesAnotherVersionsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("15\n"), 0o600))
	err := Cluster{Bin: Binaries{Dir: "/some/bin", Major: 17}, DataDir: dir}.Init(context.Background())
	require.ErrorContains(t, err, "was made by Postgres 15")
	require.ErrorContains(t, err, "make clean")
}

func TestCanEnter(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for dir := base; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			_ = os.Chmod(dir, info.Mode().Perm()|0o011) // the test's own folders, closed by t.TempDir
		}
	}
	closed := filepath.Join(base, "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	stranger := &User{Name: "stranger", UID: 4_000_000, GID: 4_000_000}
	owner := &User{Name: "owner", UID: os.Geteuid(), GID: os.Getegid()}
	require.True(t, stranger.CanEnter(filepath.Join(base, "made-later")))
	require.False(t, stranger.CanEnter(filepath.Join(closed, "made-later")))
	require.True(t, owner.CanEnter(closed))
	require.True(t, (*User)(nil).CanEnter(closed), "the current user needs no look")
}
