package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// checker collects the mistakes of one config.
type checker struct {
	found  []Problem
	places map[string]string // listening address to the path that took it
}

func (c *checker) bad(path, reason, hint string) {
	c.found = append(c.found, Problem{Path: path, Reason: reason, Hint: hint})
}

func (c *Global) validate() []Problem {
	var k checker
	k.name("name", c.Name)
	k.needed("dir", c.Dir, "write a folder that survives restarts, such as /var/lib/spillway")
	k.tls(&c.TLS)
	k.listen("raft.listen", c.Raft.Listen, "tcp", true)
	k.reach("raft.advertise", c.Raft.Advertise, c.Raft.Listen, len(c.Raft.Peers) > 0)
	k.peers(c)
	k.between("raft.heartbeat", c.Raft.Heartbeat, 50*time.Millisecond, time.Minute)
	k.keep(&c.Raft)
	k.geo(&c.Geo)
	k.dns(&c.DNS)
	k.listen("http.listen", c.HTTP.Listen, "tcp", false)
	k.proxy(&c.HTTP)
	k.door(c.HTTP.TLSCert, c.HTTP.TLSKey, c.HTTP.TrustedProxies, c.HTTP.ForwardedHeader, c.HTTP.ProxyProtocol)
	k.listen("uplink.listen", c.Uplink.Listen, "udp", true)
	k.observe(&c.Admin, &c.Metrics)
	return k.found
}

// keep bounds what the leader may do about dead voters.
func (k *checker) keep(r *Raft) {
	if d := r.RemoveAfter; d != 0 && (d < time.Minute || d > 365*24*time.Hour) {
		k.bad("$.raft.remove_after", fmt.Sprintf("raft.remove_after %s is out of range", strict.FormatDuration(d)), "write a duration from 1m to 8760h, such as 72h, or 0 to remove nobody")
	}
	if r.MinVoters < 3 || r.MinVoters > 9 {
		k.bad("$.raft.min_voters", fmt.Sprintf("raft.min_voters %d is out of range", r.MinVoters), "write 3 to 9: with two voters one loss stops every change; remove_after: 0 keeps everybody")
	}
}

// peers must hold this node at the address it advertises, or it could never count its own vote.
func (k *checker) peers(c *Global) {
	at := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Raft.Peers)) {
		path, addr := "raft.peers."+strict.Key(name), c.Raft.Peers[name]
		k.name(path, name)
		k.dial(path, addr)
		if other, ok := at[addr]; ok {
			k.bad("$."+path, fmt.Sprintf("nodes %q and %q have the same address", other, name), "give each node its own")
		}
		at[addr] = name
	}
	own, ok := c.Raft.Peers[c.Name]
	advertised := c.Raft.Advertise
	if advertised == "" {
		advertised = c.Raft.Listen
	}
	switch {
	case len(c.Raft.Peers) == 0 || c.Name == "":
	case !ok:
		k.found = append(k.found, Problem{
			Path: "$.raft.peers", Needs: "$.name", Reason: fmt.Sprintf("the peers do not list this node, %q", c.Name),
			Hint: "list every global node, this one included, the same on each",
		})
	case own != advertised:
		k.found = append(k.found, Problem{
			Path: "$.raft.peers." + strict.Key(c.Name), Needs: "$.raft.advertise",
			Reason: fmt.Sprintf("the peers list this node at %s, but it advertises %s", own, advertised), Hint: "write raft.advertise: " + own,
		})
	}
}

func (c *Regional) validate() []Problem {
	var k checker
	k.name("name", c.Name)
	k.name("region", c.Region)
	k.needed("dir", c.Dir, "write a folder that survives restarts, such as /var/lib/spillway")
	k.tls(&c.TLS)
	k.listen("http.listen", c.HTTP.Listen, "tcp", true)
	k.front(&c.HTTP, &c.Limits)
	if c.Spec == "" {
		k.listen("peer.listen", c.Peer.Listen, "tcp", true)
		k.reach("peer.advertise", c.Peer.Advertise, c.Peer.Listen, true)
	}
	k.listen("uplink.listen", c.Uplink.Listen, "udp", true)
	switch {
	case c.Spec == "":
		k.dials("globals", c.Globals, "write the uplink address of every global node: globals: [g1.example:7401]; or, without a global tier, spec: FILE")
	case len(c.Globals) > 0:
		k.bad("$.spec", "spec is for a gateway without a global tier, and globals names one", "take spec out and use `spillway apply`, or take globals out")
	}
	k.observe(&c.Admin, &c.Metrics)
	if c.Limits.MaxStreams < 1 {
		k.bad("$.limits.max_streams", fmt.Sprintf("max_streams %d is not positive", c.Limits.MaxStreams), "write how many requests may be open at one time, such as 10000")
	}
	if c.Limits.MaxConnections < 1 {
		k.bad("$.limits.max_connections", fmt.Sprintf("max_connections %d is not positive", c.Limits.MaxConnections), "write how many connections may be open at one time, such as 20000")
	}
	k.geo(&c.Geo)
	k.between("limits.header_timeout", c.Limits.HeaderTimeout, 100*time.Millisecond, time.Minute)
	k.between("limits.body_timeout", c.Limits.BodyTimeout, time.Second, 10*time.Minute)
	k.between("limits.hedge_connect", c.Limits.HedgeConnect, 20*time.Millisecond, time.Minute)
	k.between("drain_timeout", c.DrainTimeout, time.Second, 24*time.Hour)
	return k.found
}

func (c *Local) validate() []Problem {
	var k checker
	k.name("name", c.Name)
	k.name("region", c.Region)
	k.name("zone", c.Zone)
	k.listen("http.listen", c.HTTP.Listen, "tcp", true)
	if !c.HTTP.Plain || c.TLS != (TLS{}) {
		k.tls(&c.TLS)
	}
	if !c.HTTP.Plain {
		k.needed("dir", c.Dir, "write a folder that survives restarts, such as /var/lib/spillway")
		k.reach("http.advertise", c.HTTP.Advertise, c.HTTP.Listen, true)
		k.dials("gateways", c.Gateways, "write the uplink address of every gateway of the region: gateways: [gw1.example:7401]")
	} else {
		k.reach("http.advertise", c.HTTP.Advertise, c.HTTP.Listen, len(c.Gateways) > 0)
		if len(c.Gateways) > 0 {
			k.bad("$.gateways", "http.plain serves HTTP without TLS, and gateways reach a zone by TLS alone",
				"take http.plain out, or leave gateways empty for a zone that stands alone")
		}
	}
	if c.Spec != "" && (!c.HTTP.Plain || len(c.Gateways) > 0) {
		k.bad("$.spec", "a zone behind gateways gets its spec from them", "take spec out and use `spillway apply`, or set http.plain and name no gateways")
	}
	k.observe(&c.Admin, &c.Metrics)
	k.workers(c.Workers)
	if len(c.Workers) == 0 && c.WorkersFile == "" && len(c.Discover.DNS) == 0 && c.Registration.Listen == "" {
		k.bad("$.workers", "the zone has no workers", "list them under workers, name a workers_file, or let them be found by discover.dns or registration")
	}
	k.discover(&c.Discover)
	k.registration(&c.Registration)
	k.between("drain_timeout", c.DrainTimeout, time.Second, 24*time.Hour)
	k.between("scrape_interval", c.ScrapeInterval, 100*time.Millisecond, time.Minute)
	if c.PrefixIndex < 1<<20 || c.PrefixIndex > 64<<30 {
		k.bad("$.prefix_index", fmt.Sprintf("prefix_index %d is out of range", c.PrefixIndex), "write bytes, from 1048576 (1 MiB) to 68719476736 (64 GiB)")
	}
	k.texts("$.resume_texts", c.ResumeTexts)
	k.bodies("$.body_memory", c.BodyMemory)
	if c.Policy != "" && !slices.Contains(spec.Policies(), c.Policy) {
		k.bad("$.policy", fmt.Sprintf("unknown policy %q", c.Policy), strict.Suggest(c.Policy, spec.Policies(), "policies"))
	}
	return k.found
}

// maxWeight bounds a worker's weight, wherever the worker is declared: local/discover holds the same bound.
const maxWeight = 1000

func (k *checker) workers(list []WorkerEntry) {
	names, urls := map[string]int{}, map[string]int{}
	for i := range list {
		w, path := &list[i], fmt.Sprintf("workers[%d]", i)
		k.name(path+".name", w.Name)
		k.unique(names, strings.ToLower(w.Name), i, "worker name", path+".name")
		k.url(path+".url", w.URL)
		if w.GRPC != "" {
			k.url(path+".grpc", w.GRPC)
		}
		k.unique(urls, strings.ToLower(strings.TrimSuffix(w.URL, "/")), i, "worker url", path+".url")
		k.dialect(w, path)
		k.access("$."+path+".", w.Access().Problems(w.ByTLS()))
		for _, p := range w.KVProblems() {
			k.bad("$."+path+"."+p.Path, p.Reason, p.Hint)
		}
		if !(w.Weight > 0 && w.Weight <= maxWeight) {
			k.bad("$."+path+".weight", fmt.Sprintf("weight %v is not between 0 and 1000", w.Weight), "leave it out for 1; to take the worker out of service, drain it")
		}
	}
}

func (k *checker) unique(seen map[string]int, value string, i int, noun, path string) {
	if value == "" {
		return
	}
	if at, ok := seen[value]; ok {
		k.bad("$."+path, fmt.Sprintf("%s %q is there twice", noun, value), fmt.Sprintf("it also stands at workers[%d]: keep one, or change it", at))
		return
	}
	seen[value] = i
}

func (c *Worker) validate() []Problem {
	var k checker
	k.name("name", c.Name)
	k.listen("listen", c.Listen, "tcp", true)
	k.register(&c.Register, c.Listen)
	if c.TP < 0 || c.TP > 64 {
		k.bad("$.tp", fmt.Sprintf("tp %d is out of range", c.TP), "write how many GPUs run one model, 1 to 64, or leave it out")
	}
	if !(c.Speed > 0 && c.Speed <= 1000) {
		k.bad("$.speed", fmt.Sprintf("speed %v is out of range", c.Speed), "write a number above 0 and at most 1000; 1 is as fast as life")
	}
	k.between("cold_start", c.ColdStart, 0, 10*time.Minute)
	if c.Adapters < 0 || c.Adapters > 256 {
		k.bad("$.adapters", fmt.Sprintf("adapters %d is out of range", c.Adapters), "write how many LoRA adapters fit at one time, 1 to 256, or leave it out for none")
	}
	c.kvStandIn(&k)
	return k.found
}

func (k *checker) observe(a *Admin, m *Metrics) {
	k.listen("admin.listen", a.Listen, "tcp", false)
	k.listen("metrics.listen", m.Listen, "tcp", false)
	// A longer path does not fit the kernel's sockaddr_un.
	k.grants(a)
	if len(a.Socket) > 100 {
		k.bad("$.admin.socket", fmt.Sprintf("the socket's path has %d characters, more than 100", len(a.Socket)), "choose a shorter one, such as /run/spillway/admin.sock")
	}
}

func (k *checker) grants(a *Admin) {
	names := map[string]bool{}
	for i, g := range a.Grants {
		path := fmt.Sprintf("$.admin.grants[%d]", i)
		switch {
		case g.Name == "":
			k.bad(path, "the grant has no name", "write the name in the operator's certificate, or any name for a token")
		case names[g.Name]:
			k.bad(path+".name", fmt.Sprintf("two grants are for %q", g.Name), "keep one of them")
		}
		names[g.Name] = true
		if !slices.Contains([]string{"viewer", "operator", "admin"}, g.Role) {
			k.bad(path+".role", fmt.Sprintf("there is no role %q", g.Role), "write viewer, operator or admin")
		}
		if g.Token != "" && !spec.IsHashedKey(g.Token) {
			k.bad(path+".token", "the token is not a hash", "run `spillway config key`, keep what it prints first, and write the sha256:... here")
		}
	}
	if len(a.Grants) > 0 && a.Listen == "" {
		k.bad("$.admin.grants", "grants are for callers from the network, and admin.listen is not set", "set admin.listen, or leave the grants out")
	}
}

func (k *checker) needed(path, value, hint string) {
	if value == "" {
		k.bad("$."+path, path+" is missing", hint)
	}
}

func (k *checker) name(path, value string) {
	if value == "" {
		k.bad("$."+path, path+" is missing", "write a name of lower-case letters, digits and hyphens")
		return
	}
	if why := spec.BadLabel(value); why != "" {
		k.bad("$."+path, why, "use lower-case letters, digits and hyphens, at most 63")
	}
}

func (k *checker) tls(t *TLS) {
	const hint = "`spillway certs dev` makes a certificate, a key and an authority to try with"
	if *t == (TLS{}) {
		k.bad("$.tls", "tls is missing: every tier shows the others a certificate", hint)
		return
	}
	k.needed("tls.cert", t.Cert, hint)
	k.needed("tls.key", t.Key, hint)
	k.needed("tls.ca", t.CA, hint)
}

func (k *checker) geo(g *Geo) {
	if d := g.MeasuredFor; d != 0 && (d < time.Minute || d > 24*time.Hour) {
		k.bad("$.geo.measured_for", fmt.Sprintf("geo.measured_for %s is out of range", strict.FormatDuration(d)),
			"write a duration from 1m to 24h, or 0s to steer by distance alone")
	}
}

func (k *checker) between(path string, d, low, high time.Duration) {
	if d < low || d > high {
		k.bad("$."+path, fmt.Sprintf("%s %s is out of range", path, strict.FormatDuration(d)),
			fmt.Sprintf("write a duration from %s to %s", strict.FormatDuration(low), strict.FormatDuration(high)))
	}
}

// listen judges an address to listen on; a port of 0 is any free one. Net tells UDP and TCP ports apart; DNS takes both.
func (k *checker) listen(path, addr, network string, needed bool) {
	if addr == "" {
		if needed {
			k.bad("$."+path, path+" is empty", "write host:port, such as 0.0.0.0:8080, or leave the key out for the default")
		}
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !isPort(port, 0) || strings.ContainsAny(host, " /") {
		k.bad("$."+path, fmt.Sprintf("%q is not an address to listen on", addr), "write host:port, such as 0.0.0.0:8080 or [::1]:8080")
		return
	}
	k.taken(path, addr, port, network)
}

func (k *checker) taken(path, addr, port, network string) {
	if port == "0" {
		return
	}
	if k.places == nil {
		k.places = map[string]string{}
	}
	nets := []string{network}
	if network == "dns" {
		nets = []string{"tcp", "udp"}
	}
	for _, n := range nets {
		if other, ok := k.places[n+" "+addr]; ok {
			k.bad("$."+path, fmt.Sprintf("%s would listen on %s, which %s has taken", path, addr, other), "give each its own port")
			return
		}
		k.places[n+" "+addr] = path
	}
}

func isPort(s string, low int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= low && n <= 65535 && s == strconv.Itoa(n)
}

// reach judges the address that others are told. Where others need it, an address that means "every interface" cannot
// stand in for it.
func (k *checker) reach(path, advertise, listen string, needed bool) {
	if advertise != "" {
		k.dial(path, advertise)
		return
	}
	if needed && everywhere(listen) {
		k.bad("$."+path, fmt.Sprintf("others cannot reach %s", listen), fmt.Sprintf("write %s: host:port with an address of this machine that they can reach", path))
	}
}

// everywhere reports whether an address means every interface of the machine.
func everywhere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

func (k *checker) dials(path string, addrs []string, hint string) {
	if len(addrs) == 0 {
		k.bad("$."+path, path+" is empty", hint)
	}
	for i, a := range addrs {
		here := fmt.Sprintf("%s[%d]", path, i)
		k.dial(here, a)
		if slices.Index(addrs, a) < i {
			k.bad("$."+here, fmt.Sprintf("address %q is there twice", a), "keep one")
		}
	}
}

func (k *checker) dial(path, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || !isPort(port, 1) || strings.ContainsAny(host, " /") {
		k.bad("$."+path, fmt.Sprintf("%q is not an address to connect to", addr), "write host:port, such as 10.0.0.1:7401")
		return
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		k.bad("$."+path, fmt.Sprintf("nobody can connect to %s", addr), "write an address of the machine instead of "+host)
	}
}

func (k *checker) url(path, s string) {
	if s == "" {
		k.bad("$."+path, path+" is missing", `write scheme, host and port: "http://10.0.0.7:8000"`)
		return
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		k.bad("$."+path, "the url is not one of an HTTP server", `write scheme, host and port, no user and no query: "http://10.0.0.7:8000"`)
		return
	}
	if strings.Trim(u.Path, "/") != "" {
		k.bad("$."+path, fmt.Sprintf("the url has the path %q", u.Path), "leave the path out: "+u.Scheme+"://"+u.Host)
	}
}
