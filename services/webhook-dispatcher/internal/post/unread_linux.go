package post

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged answers how many bytes the other side has acknowledged, if none is on its way.
func acknowledged(conn net.Conn) (bytes uint64, ok bool) {
	control(conn, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			bytes, ok = info.Bytes_acked, info.Unacked == 0
		}
	})
	return bytes, ok
}

// acknowledgedNothingSince reports whether the other side has taken no byte after these.
func acknowledgedNothingSince(conn net.Conn, bytes uint64) (nothing bool) {
	control(conn, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		nothing = err == nil && info.Bytes_acked == bytes
	})
	return nothing
}

// hasEnded reports whether the other side's end of the connection has come, without taking anything of what it sent.
func hasEnded(conn net.Conn) (ended bool) {
	control(conn, func(fd int) {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = err == nil && n == 0
	})
	return ended
}

func control(conn net.Conn, f func(fd int)) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // of a closed connection nothing is known
}
