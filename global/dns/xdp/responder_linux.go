package xdp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Responder is a loaded program with its maps.
type Responder struct {
	program        *ebpf.Program
	outer, scratch *ebpf.Map
	counts, limits *ebpf.Map
	limitMemory    []byte

	mu    sync.Mutex // guards links: one goroutine attaches while another may detach
	links []link.Link
}

// innerSpec describes the maps that hold an image.
func innerSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "dns_image", Type: ebpf.Array, KeySize: 4, ValueSize: imageBytes + imageSlack, MaxEntries: 1}
}

// Load loads the program for queries to the ports. It answers nothing before an image is set and an interface attached. A
// nil limit answers everyone.
func Load(ports []uint16, limit *Limit) (*Responder, error) {
	r := &Responder{}
	if err := r.load(ports, limit); err != nil {
		r.Close()
		return nil, explainLoadError(err)
	}
	return r, nil
}

func (r *Responder) load(ports []uint16, limit *Limit) (err error) {
	slots := 1
	if limit != nil {
		slots = limit.Slots
	}
	for _, m := range []struct {
		to   **ebpf.Map
		spec *ebpf.MapSpec
	}{
		{&r.outer, &ebpf.MapSpec{Name: "dns_images", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: innerSpec()}},
		{&r.scratch, &ebpf.MapSpec{Name: "dns_scratch", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: scratchBytes, MaxEntries: 1}},
		{&r.counts, &ebpf.MapSpec{Name: "dns_counts", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 2}},
		{&r.limits, &ebpf.MapSpec{Name: "dns_limits", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(8 * slots), MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE}},
	} {
		if *m.to, err = ebpf.NewMap(m.spec); err != nil {
			return fmt.Errorf("creating the map %s: %w", m.spec.Name, err)
		}
	}
	if r.limitMemory, err = unix.Mmap(r.limits.FD(), 0, (8*slots+os.Getpagesize()-1)&^(os.Getpagesize()-1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping the table of the rate limit: %w", err)
	}
	maps := programMaps{image: r.outer.FD(), scratch: r.scratch.FD(), counts: r.counts.FD(), limits: r.limits.FD()}
	r.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "dns_responder", Type: ebpf.XDP, License: "GPL", Instructions: assembleProgram(maps, ports, limit)})
	return err
}

// explainLoadError says what to do about an error of the kernel.
func explainLoadError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("the process may not load BPF programs: run it as root, or with the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: %w", err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("the kernel does not support it: Linux 5.18 or later with CONFIG_BPF_SYSCALL is needed: %w", err)
	}
	return err
}

// LimitTable is the table of the rate limit, in memory that the program shares.
func (r *Responder) LimitTable() []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(&r.limitMemory[0])), len(r.limitMemory)/8)
}

// SetImage replaces the image at once. The former one is freed when no packet uses it any more.
func (r *Responder) SetImage(image []byte) error {
	inner, err := ebpf.NewMap(innerSpec())
	if err != nil {
		return fmt.Errorf("creating the map of an image: %w", err)
	}
	defer inner.Close()
	if err := inner.Put(uint32(0), image); err != nil {
		return fmt.Errorf("writing an image: %w", err)
	}
	return r.outer.Put(uint32(0), uint32(inner.FD()))
}

// Attach attaches the program to an interface, until the responder or the process ends. The driver runs it if it can, and
// else the kernel's generic layer.
func (r *Responder) Attach(name string) error {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: r.program, Interface: at.Index})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("interface %s has another XDP program: detach that, or leave the interface out: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, explainLoadError(err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links = append(r.links, l)
	return nil
}

// Counts returns how many A and AAAA queries were answered since the start.
func (r *Responder) Counts() (out [2]uint64, err error) {
	for kind := range out {
		var each []uint64
		if err := r.counts.Lookup(uint32(kind), &each); err != nil {
			return out, fmt.Errorf("reading the counts: %w", err)
		}
		for _, n := range each {
			out[kind] += n
		}
	}
	return out, nil
}

// Detach removes the program from all interfaces.
func (r *Responder) Detach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		_ = l.Close()
	}
	r.links = nil
}

// RunPacket runs the program on a frame without sending anything, and returns its verdict and the frame after it.
func (r *Responder) RunPacket(frame []byte) (verdict uint32, out []byte, err error) {
	run := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, 2048)}
	verdict, err = r.program.Run(run)
	return verdict, run.DataOut, err
}

// Verdicts of RunPacket.
const (
	VerdictPass = xdpPass
	VerdictSend = xdpTX
)

// Close detaches and unloads the program. The table of the rate limit stays mapped: readers may still use it.
func (r *Responder) Close() {
	r.Detach()
	if r.program != nil {
		_ = r.program.Close()
	}
	for _, m := range []*ebpf.Map{r.outer, r.scratch, r.counts, r.limits} {
		if m != nil {
			_ = m.Close()
		}
	}
}
