package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// demo holds the flags of one run.
type demo struct {
	layout    fleet.Layout
	dir       string
	processes bool
	traffic   float64
	verbose   bool
}

func demoCommand() *cobra.Command {
	d := demo{layout: fleet.DefaultLayout()}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole planet on this machine, without privileges",
		Long: `Run a whole planet on this machine, without privileges: global nodes with Raft and DNS, gateways, zones and
stand-in GPU workers, with real QUIC, TLS and HTTP between them, each on a loopback address of its own.`,
		Example: "  spillway demo\n  spillway demo --regions 5 --workers 8\n  spillway demo --processes --dir ./planet   # real processes to kill, state kept",
		GroupID: "start",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	d.layoutFlags(cmd)
	cmd.Flags().StringVar(&d.dir, "dir", "", "keep certificates, keys, state and logs here (default: a folder that goes at the end)")
	cmd.Flags().BoolVar(&d.processes, "processes", false, "run each node as a process of its own, and print the pids")
	cmd.Flags().Float64Var(&d.traffic, "traffic", 3, "background requests per second, from every region's city in turn; 0 for none")
	cmd.Flags().BoolVar(&d.verbose, "verbose", false, "show the nodes' own logs")
	return cmd
}

func (d *demo) layoutFlags(cmd *cobra.Command) { layoutFlags(cmd, &d.layout) }

// layoutFlags adds the flags that shape a planet.
func layoutFlags(cmd *cobra.Command, l *fleet.Layout) {
	f := cmd.Flags()
	f.IntVar(&l.Globals, "globals", l.Globals, "global nodes")
	f.IntVar(&l.Regions, "regions", l.Regions, "regions")
	f.IntVar(&l.Gateways, "gateways", l.Gateways, "gateways in each region")
	f.IntVar(&l.Zones, "zones", l.Zones, "zones in each region")
	f.IntVar(&l.Locals, "locals", l.Locals, "local instances in each zone, which divide its workers among them")
	f.IntVar(&l.Workers, "workers", l.Workers, "stand-in workers in each zone")
	f.BoolVar(&l.OneAddress, "one-address", l.OneAddress, "use 127.0.0.1 only, with distinct ports (default where the system has no other)")
	f.IntVar(&l.BasePort, "base-port", l.BasePort, "first port with --one-address")
}

func (d *demo) run(ctx context.Context, out, errOut io.Writer) error {
	dir, cleanup, err := d.folder()
	if err != nil {
		return err
	}
	defer cleanup()
	began := time.Now()
	planet, err := fleet.Write(dir, d.layout)
	if err != nil {
		return err
	}
	if _, err := checkFile(nil, errOut, planet.Spec()); err != nil { // an operator may have edited it
		return err
	}
	l := d.layout
	fmt.Fprintf(out, "Spillway demo: %d global nodes, %d regions x %d gateways x %d zones x %d workers, all on loopback.\n",
		l.Globals, l.Regions, l.Gateways, l.Zones, l.Workers)
	fmt.Fprintf(out, "  wrote %d config files, certificates and keys to %s\n", len(planet.Nodes), planet.Dir)

	stop, err := d.start(ctx, out, errOut, planet)
	if err != nil {
		return err
	}
	answer, err := firstAnswer(ctx, planet)
	if err != nil {
		return errors.Join(err, stop())
	}
	fmt.Fprintf(out, "  first DNS answer %.1f s after start: %s is %s\n", time.Since(began).Seconds(), fleet.Service, answer)
	if err := settled(ctx, planet); err != nil {
		fmt.Fprintln(out, "  note:", err)
	} else {
		fmt.Fprintf(out, "  all %d workers ready %.1f s after start\n", len(planet.Of("worker")), time.Since(began).Seconds())
	}
	fmt.Fprintln(out)
	printGuide(out, planet, d.processes)

	traffic, err := d.background(ctx, out, planet)
	if err != nil {
		return errors.Join(err, stop())
	}
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping...")
	traffic()
	if err := stop(); err != nil {
		return err
	}
	fmt.Fprintln(out, "stopped.")
	return nil
}

// folder is where the planet lives, and what to do with it at the end.
func (d *demo) folder() (string, func(), error) {
	if d.dir != "" {
		return d.dir, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "spillway-demo-")
	if err != nil {
		return "", nil, fmt.Errorf("making a folder for the demo: %w", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// start runs the planet in this process or in children, and returns what stops it.
func (d *demo) start(ctx context.Context, out, errOut io.Writer, p *fleet.Planet) (func() error, error) {
	// A context that outlives the interrupt: nodes are stopped in order, not cut.
	ctx = context.WithoutCancel(ctx)
	if d.processes {
		return d.spawn(ctx, out, p)
	}
	growDescriptors(descriptors)
	log := slog.New(slog.DiscardHandler)
	if d.verbose {
		log = slog.New(slog.NewTextHandler(errOut, nil))
	}
	r, err := fleet.Run(ctx, p, openRole, log)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w\nhint: is another demo running? stop it, or move this one with --one-address --base-port %d", err, d.layout.BasePort+1000)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return r.Stop(ctx) }, nil
}

func (d *demo) spawn(ctx context.Context, out io.Writer, p *fleet.Planet) (func() error, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	ps, err := fleet.Spawn(p, binary)
	if err != nil {
		return nil, err
	}
	printProcesses(out, p, ps)
	return func() error { return ps.Stop(ctx) }, nil
}

// startTimeout bounds the wait for the first answer; the goal is 3 s.
const startTimeout = 30 * time.Second

// firstAnswer asks the name servers in turn until one answers with an address.
func firstAnswer(ctx context.Context, p *fleet.Planet) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	for i := 0; ctx.Err() == nil; i++ {
		server := p.DNS()[i%len(p.DNS())]
		addrs, err := lookup(ctx, server, fleet.Service)
		if err == nil && len(addrs) > 0 {
			return addrs[0], nil
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return netip.Addr{}, fmt.Errorf("no name server answered within %s: %w\nhint: look at the nodes' logs with --verbose, or in %s with --processes",
		startTimeout, last, filepath.Join(p.Dir, "log"))
}

// lookup asks one name server for a name's IPv4 addresses.
func lookup(ctx context.Context, server netip.AddrPort, name string) ([]netip.Addr, error) {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server.String())
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip4", name)
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		dns.Server = server.String() // the library names the one of resolv.conf, which was not asked
	}
	return addrs, err
}
