package offcpu

import (
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// PeerLabel is the key of the label of a wait for a socket, with [Config.Peers]. Its value is the protocol and the
// address of the peer.
const PeerLabel = "peer"

// unknownPeer is the peer of a wait in a function of sockets if it is not certain for which socket the thread waits.
const unknownPeer = "unknown"

// ofSockets are the reasons of waits for one socket.
var ofSockets = map[waits.Reason]bool{"socket": true, "accept": true, "connect": true}

// Labels implements [source.Labeler].
func (m *Subject) Labels(p *naming.StackBuilder, s stacks.Sample) []profile.Label {
	if !m.Peers {
		return nil
	}
	text := m.source.peer(s.Detail >> peerShift)
	if text == "" && s.Detail&Preempted == 0 && ofSockets[ReasonOf(p, s.Trace, waits.Of)] {
		text = unknownPeer
	}
	if text == "" {
		return nil
	}
	return []profile.Label{{Key: PeerLabel, Value: text}}
}

// peer returns the peer with an ID, "" if there is none.
func (s *Source) peer(id uint64) string {
	if id == 0 {
		return ""
	}
	text, known := s.peers[id]
	if known {
		return text
	}
	var p bpf.OffCPUPeer
	if err := s.Maps[bpf.OffCPUMapPeers].Lookup(id, &p); err == nil {
		text = peerText(p)
	}
	if s.peers == nil {
		s.peers = map[uint64]string{}
	}
	s.peers[id] = text // at most as many as in the map
	return text
}

// lostPeers says how many waits have no peer because the kernel side's map is full.
func (m *Subject) lostPeers() []string {
	var lost uint64
	if err := m.source.Variables[bpf.OffCPUVarPeersLost].Get(&lost); err != nil {
		return []string{plain.Error(err)}
	}
	if lost == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s for sockets without a peer: there were more than %d peers", plain.Count(lost, "wait"), m.source.Maps[bpf.OffCPUMapPeers].MaxEntries())}
}

// protocols are the names of protocols of Internet sockets.
var protocols = map[uint16]string{
	unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp", unix.IPPROTO_UDPLITE: "udplite",
	unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmp6", unix.IPPROTO_MPTCP & 0xffff: "mptcp",
}

// peerText returns the protocol and the address of a peer, such as "tcp 10.0.0.1:5432" or "unix /run/app.sock".
func peerText(p bpf.OffCPUPeer) string {
	if p.Family == unix.AF_UNIX {
		return unixText(p)
	}
	protocol := protocols[p.Protocol]
	if protocol == "" {
		protocol = fmt.Sprintf("ip protocol %d", p.Protocol)
	}
	address := netip.AddrPortFrom(address(p), p.Port)
	if bpf.OffCPUPeerKind(p.Kind) == bpf.OffCPUPeerKindPEER_CONNECTED {
		return protocol + " " + address.String()
	}
	return fmt.Sprintf("%s %s %s", protocol, withoutPeer(p), address)
}

// address returns the Internet address of p.
func address(p bpf.OffCPUPeer) netip.Addr {
	bytes := *(*[16]byte)(unsafe.Pointer(&p.Address))
	if p.Family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(bytes[:4]))
	}
	return netip.AddrFrom16(bytes).Unmap()
}

// withoutPeer says what a socket without a peer waits for.
func withoutPeer(p bpf.OffCPUPeer) string {
	if p.Type == unix.SOCK_STREAM || p.Type == unix.SOCK_SEQPACKET {
		return "listening on"
	}
	return "any, on"
}

// unixText is [peerText] for Unix sockets. Few of those that connect to others have an address themselves.
func unixText(p bpf.OffCPUPeer) string {
	path := string(unsafe.Slice((*byte)(unsafe.Pointer(&p.Path)), min(int(p.Length), int(unsafe.Sizeof(p.Path)))))
	switch abstract := strings.TrimPrefix(path, "\x00"); {
	case abstract != path:
		path = "@" + abstract // as in ss and netstat
	default:
		path, _, _ = strings.Cut(path, "\x00")
	}
	switch {
	case path == "":
		return "unix unnamed"
	case int(p.Length) == int(unsafe.Sizeof(p.Path)):
		path += "…"
	}
	switch bpf.OffCPUPeerKind(p.Kind) {
	case bpf.OffCPUPeerKindPEER_CLIENT:
		return "unix client of " + path
	case bpf.OffCPUPeerKindPEER_ANY:
		return "unix " + withoutPeer(p) + " " + path
	}
	return "unix " + path
}
