package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

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
