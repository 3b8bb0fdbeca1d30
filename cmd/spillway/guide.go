package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// printGuide prints lines to copy and paste while the demo runs.
func printGuide(w io.Writer, p *fleet.Planet, processes bool) {
	self := os.Args[0] // as it was called, so that the lines work where it is not in PATH
	dns, gw, worker := p.DNS()[0], p.Of("regional")[0], p.Of("worker")[0]
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
	section("Where would a client be sent? Documentation prefixes pose as places:",
		dig+" chat.spillway.test +subnet=192.0.2.0/26       # Ashburn",
		dig+" chat.spillway.test +subnet=198.51.100.0/26    # Frankfurt",
		dig+" chat.spillway.test +subnet=203.0.113.0/26     # Tokyo",
		dig+" _why.chat.spillway.test TXT +subnet=198.51.100.0/26")
	section("Stream tokens straight from a gateway, then through the redirect that a global node answers:",
		fmt.Sprintf("curl -N http://%s/v1/chat/completions %s %s", gw.Addr["http"], key, body),
		fmt.Sprintf("curl -NL %s http://chat.spillway.test:%d/v1/chat/completions %s %s", resolves(p), p.Of("global")[0].Addr["http"].Port(), key, body))
	section("Look:",
		self+" status --workers",
		self+" explain --from 198.51.100.10 --model llama-3.1-8b")
	breaking := []string{
		self + ` drain region frankfurt --for 1m --reason "trying it"   # and: ` + self + ` undrain region frankfurt`,
		fmt.Sprintf(`curl -d '{"mode":"die_midstream"}' http://%s/chaos   # a worker; {"mode":"ok"} mends it`, worker.Addr["http"]),
	}
	if processes {
		breaking = append(breaking, "kill -9 PID   # of any process above")
	} else {
		breaking = append(breaking, self+" demo --processes   # instead of this one: real processes to kill -9")
	}
	section("Break:", breaking...)
	section("Load (in another terminal):",
		fmt.Sprintf("%s load --dns %s --service chat.spillway.test --port %d --key-file %s --rate 5 --for 30s",
			self, joinAddrs(p), gw.Addr["http"].Port(), filepath.Join(p.Dir, "keys", "acme.key")))
	fmt.Fprintln(w, "Ctrl-C stops the planet.")
}

// resolves tells curl where the service and its regions' child names are, as a resolver would.
func resolves(p *fleet.Planet) string {
	var b strings.Builder
	g := p.Of("global")[0].Addr["http"]
	fmt.Fprintf(&b, "--resolve chat.spillway.test:%d:%s", g.Port(), g.Addr())
	for _, n := range p.Of("regional") {
		a := n.Addr["http"]
		if strings.HasSuffix(n.Name, "-gw1") {
			fmt.Fprintf(&b, " --resolve %s.chat.spillway.test:%d:%s", n.Region, a.Port(), a.Addr())
		}
	}
	return b.String()
}

func joinAddrs(p *fleet.Planet) string {
	var out []string
	for _, a := range p.DNS() {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

// printProcesses lists the children with the lines that would start each by hand.
func printProcesses(w io.Writer, p *fleet.Planet, ps *fleet.Processes) {
	table(w, func(t io.Writer) {
		fmt.Fprintln(t, "\n  PID\tNODE\tSTARTED AS")
		for i := len(p.Nodes) - 1; i >= 0; i-- {
			n := p.Nodes[i]
			fmt.Fprintf(t, "  %d\t%s\tspillway %s -c %s\n", ps.PID(n), n.ID(), n.Role, p.Config(n))
		}
	})
	fmt.Fprintf(w, "\n  logs are in %s\n", filepath.Join(p.Dir, "log"))
}
