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
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// demoOptions holds the flags of the demo.
type demoOptions struct {
	layout      fleet.Layout
	dir         string
	processes   bool
	trafficRate float64
	verbose     bool
}

func newDemoCommand() *cobra.Command {
	d := demoOptions{layout: fleet.DefaultLayout()}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a complete multi-region fleet on this machine, without privileges",
		Long: `Run a complete multi-region fleet on this machine, without privileges: global nodes with Raft and DNS, gateways, zones and
simulated GPU workers, connected by QUIC, TLS and HTTP, each with its own loopback address.`,
		Example: "  spillway demo\n  spillway demo --regions 5 --workers 8\n  spillway demo --processes --dir ./fleet   # one process per node, state kept in ./fleet",
		GroupID: "start",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.useLayoutOfDir(cmd.Flags()); err != nil {
				return err
			}
			return d.runDemo(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	d.addLayoutFlags(cmd)
	cmd.Flags().StringVar(&d.dir, "dir", "", "folder for certificates, keys, state and logs (default: a temporary folder that is removed at the end)")
	cmd.Flags().BoolVar(&d.processes, "processes", false, "run each node as its own process and print the pids")
	cmd.Flags().Float64Var(&d.trafficRate, "traffic", 3, "background requests per second, from the regions' cities in turn; 0 for none")
	cmd.Flags().BoolVar(&d.verbose, "verbose", false, "show the logs of the nodes")
	return cmd
}

func (d *demoOptions) addLayoutFlags(cmd *cobra.Command) { addLayoutFlags(cmd, &d.layout) }

// useLayoutOfDir uses the layout stored in the folder of --dir unless a flag sets the layout, so that a folder written by
// `spillway config init --fleet` starts without repeating its flags.
func (d *demoOptions) useLayoutOfDir(f *pflag.FlagSet) error {
	if d.dir == "" {
		return nil
	}
	for _, name := range layoutFlagNames {
		if f.Changed(name) {
			return nil
		}
	}
	l, found, err := fleet.ReadLayout(d.dir)
	if err == nil && found {
		d.layout = l
	}
	return err
}

// layoutFlagNames are the flags that addLayoutFlags adds.
var layoutFlagNames = []string{"globals", "regions", "gateways", "zones", "locals", "workers", "one-address", "base-port", "relays", "no-delay"}

// addLayoutFlags adds the flags that set the number of nodes of each kind.
func addLayoutFlags(cmd *cobra.Command, l *fleet.Layout) {
	f := cmd.Flags()
	f.IntVar(&l.Globals, "globals", l.Globals, "global nodes")
	f.IntVar(&l.Regions, "regions", l.Regions, "regions")
	f.IntVar(&l.Gateways, "gateways", l.Gateways, "gateways in each region")
	f.IntVar(&l.Zones, "zones", l.Zones, "zones in each region")
	f.IntVar(&l.Locals, "locals", l.Locals, "local instances in each zone, which divide its workers among themselves")
	f.IntVar(&l.Workers, "workers", l.Workers, "simulated workers in each zone")
	f.BoolVar(&l.OneAddress, "one-address", l.OneAddress, "use only 127.0.0.1, with distinct ports (default on systems without other loopback addresses)")
	f.IntVar(&l.BasePort, "base-port", l.BasePort, "first port with --one-address")
	f.BoolVar(&l.Relays, "relays", l.Relays, "put a relay on each connection between two nodes, with the delay of their distance, for faults and drills")
	f.BoolVar(&l.NoDelay, "no-delay", l.NoDelay, "with --relays, no delay by distance")
}

func (d *demoOptions) runDemo(ctx context.Context, out, errOut io.Writer) error {
	dir, cleanup, err := d.openDir()
	if err != nil {
		return err
	}
	defer cleanup()
	began := time.Now()
	f, err := fleet.WriteFiles(dir, d.layout)
	if err != nil {
		return err
	}
	if _, err := checkConfigFile(nil, errOut, f.SpecPath()); err != nil { // the user may have edited it
		return err
	}
	l := d.layout
	fmt.Fprintf(out, "Spillway demo: %d global nodes, %d regions x %d gateways x %d zones x %d workers, all on loopback.\n",
		l.Globals, l.Regions, l.Gateways, l.Zones, l.Workers)
	fmt.Fprintf(out, "  wrote %d config files, certificates and keys to %s\n", len(f.Nodes), f.Dir)

	stop, err := d.startFleet(ctx, out, errOut, f)
	if err != nil {
		return err
	}
	answer, err := waitForFirstAnswer(ctx, f)
	if err != nil {
		return errors.Join(err, stop())
	}
	fmt.Fprintf(out, "  first DNS answer %.1f s after start: %s is %s\n", time.Since(began).Seconds(), fleet.ServiceName, answer)
	if err := waitForReadyWorkers(ctx, f); err != nil {
		fmt.Fprintln(out, "  note:", err)
	} else {
		fmt.Fprintf(out, "  all %d workers ready %.1f s after start\n", len(f.NodesByRole("worker")), time.Since(began).Seconds())
	}
	fmt.Fprintln(out)
	printDemoGuide(out, f, d.processes)
	stopConsole := printDemoConsole(out, f)
	defer stopConsole()

	stopTraffic, err := d.startBackgroundTraffic(ctx, out, f)
	if err != nil {
		return errors.Join(err, stop())
	}
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping...")
	stopTraffic()
	if err := stop(); err != nil {
		return err
	}
	fmt.Fprintln(out, "stopped.")
	return nil
}

// openDir returns the folder of the fleet and a function that cleans up at the end.
func (d *demoOptions) openDir() (string, func(), error) {
	if d.dir != "" {
		return d.dir, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "spillway-demo-")
	if err != nil {
		return "", nil, fmt.Errorf("creating a folder for the demo: %w", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// startFleet runs the fleet in this process or in child processes, and returns a function that stops it.
func (d *demoOptions) startFleet(ctx context.Context, out, errOut io.Writer, p *fleet.Files) (func() error, error) {
	// The nodes' context outlives the interrupt, because they stop gracefully and in order.
	ctx = context.WithoutCancel(ctx)
	if d.processes {
		return d.spawnProcesses(ctx, out, p)
	}
	if d.layout.Relays {
		return nil, errors.New("--relays needs one process per node: add --processes")
	}
	growDescriptors(initialDescriptors)
	log := slog.New(slog.DiscardHandler)
	if d.verbose {
		log = slog.New(slog.NewTextHandler(errOut, nil))
	}
	r, err := fleet.RunInProcess(ctx, p, openRole, log)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w\nhint: is another demo running? stop it, or move this one with --one-address --base-port %d", err, d.layout.BasePort+1000)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return r.Stop(ctx) }, nil
}

func (d *demoOptions) spawnProcesses(ctx context.Context, out io.Writer, p *fleet.Files) (func() error, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	ps, err := fleet.SpawnAll(p, binary)
	if err != nil {
		return nil, err
	}
	printProcesses(out, p, ps)
	return func() error { return ps.Stop(ctx) }, nil
}

// firstAnswerTimeout bounds the wait for the first answer; the goal is 3 s.
const firstAnswerTimeout = 30 * time.Second

// waitForFirstAnswer queries the name servers in turn until one answers with an address.
func waitForFirstAnswer(ctx context.Context, p *fleet.Files) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswerTimeout)
	defer cancel()
	var last error
	for i := 0; ctx.Err() == nil; i++ {
		server := p.DNSAddrs()[i%len(p.DNSAddrs())]
		addrs, err := lookupIPv4(ctx, server, fleet.ServiceName)
		if err == nil && len(addrs) > 0 {
			return addrs[0], nil
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return netip.Addr{}, fmt.Errorf("no name server answered within %s: %w\nhint: the logs of the nodes are shown with --verbose, or are in %s with --processes",
		firstAnswerTimeout, last, filepath.Join(p.Dir, "log"))
}

// lookupIPv4 queries one name server for the IPv4 addresses of a name.
func lookupIPv4(ctx context.Context, server netip.AddrPort, name string) ([]netip.Addr, error) {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server.String())
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip4", name)
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		dns.Server = server.String() // the resolver reports the server of resolv.conf, which was not queried
	}
	return addrs, err
}

// workersReadyTimeout bounds the wait for the last worker to become ready, which usually takes about a second.
const workersReadyTimeout = 20 * time.Second

// waitForReadyWorkers waits until a global node reports every worker of the fleet as ready. DNS answers earlier than that, and a
// request in between is rejected for lack of capacity.
func waitForReadyWorkers(ctx context.Context, p *fleet.Files) error {
	ctx, cancel := context.WithTimeout(ctx, workersReadyTimeout)
	defer cancel()
	c, err := admin.Dial("unix://"+p.NodesByRole("global")[0].AdminSocket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	want := len(p.NodesByRole("worker"))
	ready := 0
	for {
		if s, err := c.GetStatus(ctx); err == nil {
			if ready = countReadyWorkers(s); ready == want && s.SpecVersion > 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d workers are ready after %s: see `spillway status --workers`", ready, want, workersReadyTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// countReadyWorkers counts the ready workers of reporting regions. In a demo fleet each worker serves one model.
func countReadyWorkers(s *admin.Status) int {
	n := 0
	for _, r := range s.Regions {
		for _, m := range r.Models {
			if r.State == admin.StateFresh {
				n += int(m.Ready)
			}
		}
	}
	return n
}

// printDemoConsole serves the console of the first global node and prints its URL. Without a free port the demo runs without.
func printDemoConsole(out io.Writer, p *fleet.Files) (stop func()) {
	socket := p.NodesByRole("global")[0].AdminSocket()
	c, err := startConsole(defaultConsoleAddr, socket)
	if err != nil { // another demo has the port
		c, err = startConsole("127.0.0.1:0", socket)
	}
	if err != nil {
		fmt.Fprintln(out, "  note: no console:", err)
		return func() {}
	}
	fmt.Fprintf(out, "Open the console in a browser:\n  %s\n\n", c.URL())
	return c.Stop
}

// printDemoGuide prints commands to copy and paste while the demo runs.
func printDemoGuide(w io.Writer, p *fleet.Files, processes bool) {
	self := os.Args[0] // the path as the user wrote it, so that the commands work without PATH
	dns, gw, worker := p.DNSAddrs()[0], p.NodesByRole("regional")[0], p.NodesByRole("worker")[0]
	// A drain of the only region would be refused, because no region would remain.
	drained := fmt.Sprintf("drain worker %s/%s/%s", worker.Region, worker.Zone, worker.Name)
	if p.Layout.Regions > 1 {
		drained = "drain region " + fleet.AllSites()[1].Name
	}
	dig := fmt.Sprintf("dig @%s -p %d +short", dns.Addr(), dns.Port())
	key := fmt.Sprintf(`-H "Authorization: Bearer $(cat %s)"`, filepath.Join(p.Dir, "keys", "acme.key"))
	const body = `-d '{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"Where do I run?"}]}'`

	section := func(title string, lines ...string) {
		fmt.Fprintf(w, "%s\n", title)
		for _, l := range lines {
			fmt.Fprintf(w, "  %s\n", l)
		}
		fmt.Fprintln(w)
	}
	section("Ask DNS where clients are sent; documentation prefixes stand for locations:",
		dig+" chat.spillway.test +subnet=192.0.2.0/26       # Ashburn",
		dig+" chat.spillway.test +subnet=198.51.100.0/26    # Frankfurt",
		dig+" chat.spillway.test +subnet=203.0.113.0/26     # Tokyo",
		dig+" _why.chat.spillway.test TXT +subnet=198.51.100.0/26")
	section("Stream tokens from a gateway, then through the redirect of a global node:",
		fmt.Sprintf("curl -N http://%s/v1/chat/completions %s %s", gw.Addr["http"], key, body),
		fmt.Sprintf("curl -NL %s http://chat.spillway.test:%d/v1/chat/completions %s %s", formatResolveFlags(p), p.NodesByRole("global")[0].Addr["http"].Port(), key, body))
	section("Inspect:",
		self+" status --workers",
		self+" explain --from 198.51.100.10 --model llama-3.1-8b")
	faults := []string{
		fmt.Sprintf(`%s %s --for 1m --reason "demo"   # and: %s un%s`, self, drained, self, drained),
		fmt.Sprintf(`curl -d '{"mode":"die_midstream"}' http://%s/chaos   # a worker; {"mode":"ok"} clears the fault`, worker.Addr["http"]),
	}
	if processes {
		faults = append(faults, "kill -9 PID   # of any process above")
	} else {
		faults = append(faults, self+" demo --processes   # instead of this demo: one process per node, to kill -9")
	}
	section("Drain a part or inject a fault:", faults...)
	section("Generate load (in another terminal):",
		fmt.Sprintf("%s load --dns %s --service chat.spillway.test --port %d --key-file %s --rate 5 --for 30s",
			self, joinNameServers(p), gw.Addr["http"].Port(), filepath.Join(p.Dir, "keys", "acme.key")))
	fmt.Fprintln(w, "Ctrl-C stops the demo.")
}

// formatResolveFlags returns curl flags that resolve the service and its regions' child names as its DNS does.
func formatResolveFlags(p *fleet.Files) string {
	var b strings.Builder
	g := p.NodesByRole("global")[0].Addr["http"]
	fmt.Fprintf(&b, "--resolve chat.spillway.test:%d:%s", g.Port(), g.Addr())
	for _, n := range p.NodesByRole("regional") {
		a := n.Addr["http"]
		if strings.HasSuffix(n.Name, "-gw1") {
			fmt.Fprintf(&b, " --resolve %s.chat.spillway.test:%d:%s", n.Region, a.Port(), a.Addr())
		}
	}
	return b.String()
}

func joinNameServers(p *fleet.Files) string {
	var out []string
	for _, a := range p.DNSAddrs() {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

// printProcesses lists the child processes with the command that starts each.
func printProcesses(w io.Writer, p *fleet.Files, ps *fleet.Processes) {
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "\n  PID\tNODE\tSTARTED AS")
		for i := len(p.Nodes) - 1; i >= 0; i-- {
			n := p.Nodes[i]
			fmt.Fprintf(t, "  %d\t%s\tspillway %s -c %s\n", ps.PID(n), n.ID(), n.Role, p.ConfigPath(n))
		}
	})
	fmt.Fprintf(w, "\n  logs are in %s\n", filepath.Join(p.Dir, "log"))
}
