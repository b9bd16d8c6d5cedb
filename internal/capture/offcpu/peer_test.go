package offcpu

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
)

// A peer has the address that tools show, whatever bytes a Unix socket has for a path.
func TestPeerText(t *testing.T) {
	internet := func(kind bpf.OffCPUPeerKind, family, typ, protocol, port uint16, address ...byte) bpf.OffCPUPeer {
		p := bpf.OffCPUPeer{Kind: uint16(kind), Family: family, Type: typ, Protocol: protocol, Port: port}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&p.Address)), unsafe.Sizeof(p.Address)), address)
		return p
	}
	local := func(kind bpf.OffCPUPeerKind, path string) bpf.OffCPUPeer {
		p := bpf.OffCPUPeer{Kind: uint16(kind), Family: unix.AF_UNIX, Type: unix.SOCK_STREAM, Length: uint16(len(path))}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&p.Path)), unsafe.Sizeof(p.Path)), path)
		return p
	}
	long := "/" + string(make([]byte, unsafe.Sizeof(bpf.OffCPUPeer{}.Path)-1))
	const connected, alone, client = bpf.OffCPUPeerKindPEER_CONNECTED, bpf.OffCPUPeerKindPEER_ANY, bpf.OffCPUPeerKindPEER_CLIENT
	for want, p := range map[string]bpf.OffCPUPeer{
		"tcp 10.0.0.7:5432":         internet(connected, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP, 5432, 10, 0, 0, 7),
		"tcp 10.0.0.7:5433":         internet(connected, unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP, 5433, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7),
		"tcp listening on [::]:80":  internet(alone, unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP, 80),
		"udp any, on 127.0.0.53:53": internet(alone, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP, 53, 127, 0, 0, 53),
		"ip protocol 89 10.0.0.1:1": internet(connected, unix.AF_INET, unix.SOCK_RAW, 89, 1, 10, 0, 0, 1),
		"unix /run/a.sock":          local(connected, "/run/a.sock\x00"),
		"unix @name":                local(connected, "\x00name"),
		"unix client of /run/b":     local(client, "/run/b"),
		"unix listening on /run/c":  local(alone, "/run/c"),
		"unix unnamed":              local(client, ""),
		"unix /…":                   local(connected, long),
	} {
		if got := peerText(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	forged := local(connected, "/x")
	forged.Length = 65535
	if got := peerText(forged); got != "unix /x" {
		t.Errorf("a length beyond the path: got %q", got)
	}
}
