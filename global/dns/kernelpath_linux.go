package dns

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/spillway-lb/spillway/global/dns/xdp"
)

const (
	// kernelRefresh is how often the program's answers are compared with the snapshot: for so long an earlier answer may
	// still be given.
	kernelRefresh = 20 * time.Millisecond
	// addrRefresh is how often the addresses of the interfaces are read, for listeners at all addresses.
	addrRefresh = time.Second
)

// kernelPath keeps the answers of the program in the kernel equal to the snapshot's, and counts them.
type kernelPath struct {
	server    *Server
	responder *xdp.Responder
	attached  bool
	failed    bool
	names     []CompiledName // of the image in force
	addrs     []netip.Addr   // of the image in force
	addrsAt   time.Time
	counted   [2]uint64
	quit      chan struct{}
	done      chan struct{} // nil: it was not started
}

// openKernelPath loads the program. Where that is impossible, the sockets answer everything.
func (s *Server) openKernelPath() {
	ports := s.udpPorts()
	if len(s.cfg.XDP) == 0 || len(ports) == 0 {
		return
	}
	limit := describeLimit(s.handler.limiter)
	r, err := xdp.Load(ports, limit)
	if err != nil {
		s.cfg.Log.Warn("dns.xdp is not in force: sockets answer all queries", "error", err)
		return
	}
	if limit != nil {
		s.handler.limiter.table = atomicSlots(r.LimitTable())
	}
	s.kernel = &kernelPath{server: s, responder: r, quit: make(chan struct{})}
}

// udpPorts are the ports at which the server answers over UDP and IPv4.
func (s *Server) udpPorts() (out []uint16) {
	for _, p := range s.ports {
		if a := p.addr.Addr(); !p.tls && (a.Is4() || a.IsUnspecified()) && !slices.Contains(out, p.addr.Port()) {
			out = append(out, p.addr.Port())
		}
	}
	return out
}

// describeLimit describes the limiter's table for the program; nil without a limit.
func describeLimit(l *responseLimiter) *xdp.Limit {
	var now unix.Timespec
	if l == nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return nil
	}
	return &xdp.Limit{
		Slots: limiterSize, TickBits: tickBits, TicksPerSecond: ticksPerSecond, TicksPerAnswer: l.ticksPerAnswer, MaxTicksAhead: l.maxTicksAhead,
		Seed: l.seed, StartedAt: now.Nano() - int64(time.Since(l.startedAt)),
	}
}

// atomicSlots is the same memory as slots that are read and written atomically.
func atomicSlots(all []uint64) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&all[0])), len(all))
}

// start begins to refresh the program's answers.
func (k *kernelPath) start() {
	if k == nil {
		return
	}
	k.done = make(chan struct{})
	go k.refreshLoop()
}

// stop detaches the program: from then on the sockets receive all queries.
func (k *kernelPath) stop() {
	if k == nil {
		return
	}
	close(k.quit)
	if k.done != nil {
		<-k.done
		k.reportCounts()
	}
	k.responder.Close()
}

func (k *kernelPath) refreshLoop() {
	defer close(k.done)
	tick := time.NewTicker(kernelRefresh)
	defer tick.Stop()
	for now := time.Now(); ; {
		if err := k.refresh(now); err != nil {
			k.reportCounts()
			k.failed = true
			k.responder.Detach()
			k.server.cfg.Log.Error("dns.xdp is not in force any more: sockets answer all queries; restart the node to try again", "error", err)
			return
		}
		select {
		case <-k.quit:
			return
		case now = <-tick.C:
		}
	}
}

// refresh replaces the program's answers if the snapshot's are others, and attaches it when it has the first.
func (k *kernelPath) refresh(now time.Time) error {
	var names []CompiledName
	if v, ok := k.server.cfg.Snapshot().(CompiledSnapshot); ok {
		names = v.CompiledNames()
	}
	addrs := k.addrs
	if now.Sub(k.addrsAt) >= addrRefresh {
		k.addrsAt = now
		addrs = k.localAddrs()
		k.reportCounts()
	}
	if k.attached && slices.EqualFunc(names, k.names, equalCompiled) && slices.Equal(addrs, k.addrs) {
		return nil
	}
	image, leftOut := xdp.BuildImage(addrs, toImageNames(names))
	if err := k.responder.SetImage(image); err != nil {
		return err
	}
	k.names, k.addrs = names, addrs
	if leftOut > 0 {
		k.server.cfg.Log.Debug("names do not fit into the tables of dns.xdp: sockets answer their queries", "names", leftOut)
	}
	return k.attach()
}

// attach attaches the program to the interfaces, once.
func (k *kernelPath) attach() error {
	if k.attached {
		return nil
	}
	for _, name := range k.server.cfg.XDP {
		if err := k.responder.Attach(name); err != nil {
			return err
		}
	}
	k.attached = true
	k.server.cfg.Log.Info("dns.xdp is in force", "interfaces", k.server.cfg.XDP)
	return nil
}

// localAddrs are the IPv4 addresses at which the server answers: those that it listens on, and for a listener at all
// addresses those of the interfaces.
func (k *kernelPath) localAddrs() (out []netip.Addr) {
	for _, p := range k.server.ports {
		switch a := p.addr.Addr(); {
		case p.tls:
		case a.IsUnspecified():
			for _, name := range k.server.cfg.XDP {
				out = append(out, interfaceAddrs(name)...)
			}
		case a.Is4():
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// interfaceAddrs are the IPv4 addresses of an interface.
func interfaceAddrs(name string) (out []netip.Addr) {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	all, _ := at.Addrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			out = append(out, p.Addr())
		}
	}
	return out
}

// equalCompiled reports whether two names have the same answers.
func equalCompiled(a, b CompiledName) bool {
	return a.Name == b.Name && a.Service == b.Service && a.Networks == b.Networks && a.TTL == b.TTL && slices.EqualFunc(a.Records, b.Records, haveSameAddrs)
}

func haveSameAddrs(a, b *PreparedRecords) bool {
	return slices.Equal(a.v4, b.v4) && slices.Equal(a.v6, b.v6)
}

// toImageNames converts names to the program's.
func toImageNames(names []CompiledName) []xdp.Name {
	out := make([]xdp.Name, len(names))
	for i := range names {
		n := &names[i]
		out[i] = xdp.Name{Wire: wireName(n.Name), Class: uint32(classifyAnswer(dns.RcodeSuccess, n.Service)), Networks: n.Networks.EncodeIPv4}
		for _, r := range n.Records {
			out[i].Answers = append(out[i].Answers, [2]xdp.Answer{newImageAnswer(r.v4, recordLenA, n.TTL), newImageAnswer(r.v6, recordLenAAAA, n.TTL)})
		}
	}
	return out
}

// newImageAnswer returns the section that fastPath.writeAnswer writes.
func newImageAnswer(all []byte, size int, ttl uint32) xdp.Answer {
	b := appendWithTTL(make([]byte, headerLen), all, size, ttl)
	return xdp.Answer{Count: binary.BigEndian.Uint16(b[6:]), Records: b[headerLen:]}
}

// reportCounts calls the observer with the answers since the last call.
func (k *kernelPath) reportCounts() {
	if k.failed {
		return
	}
	now, err := k.responder.Counts()
	if err != nil {
		k.server.cfg.Log.Warn("counting the answers of dns.xdp", "error", fmt.Sprint(err))
		return
	}
	for i, qtype := range [...]uint16{dns.TypeA, dns.TypeAAAA} {
		if n := now[i] - k.counted[i]; n > 0 {
			k.server.cfg.Observe(QueryEvent{Count: int(n), Qtype: qtype, Service: -1, FastPath: true})
		}
	}
	k.counted = now
}
