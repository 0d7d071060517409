package pgserver

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// User is who runs the server when it cannot be the current user.
type User struct {
	Name     string
	UID, GID int
}

// ServerUser is nil for a normal user; Postgres refuses to run as root, so for root it is the machine's postgres or nobody.
func ServerUser() (*User, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the current user
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(account.Uid)
		gid, gidErr := strconv.Atoi(account.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &User{Name: name, UID: uid, GID: gid}, nil
		}
	}
	return nil, errors.New("root cannot run Postgres, and this machine has neither a user postgres nor nobody; run as a normal user")
}

// CanEnter tells whether u may pass through every existing folder on the way to path.
func (u *User) CanEnter(path string) bool {
	if u == nil {
		return true
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // made later, by us
		case err != nil:
			return false
		case !u.mayPass(info):
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func (u *User) mayPass(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := info.Mode().Perm()
	switch {
	case int(stat.Uid) == u.UID:
		return mode&0o100 != 0
	case int(stat.Gid) == u.GID:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

func (u *User) sysProcAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if u != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)} //nolint:gosec // ids of the user database
	}
	return attr
}
