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

// configChecker collects the mistakes of one config.
type configChecker struct {
	problems    []Problem
	listenAddrs map[string]string // listening address to the path that uses it
}

func (c *configChecker) addProblem(path, reason, hint string) {
	c.problems = append(c.problems, Problem{Path: path, Reason: reason, Hint: hint})
}

func (c *Global) findProblems() []Problem {
	var k configChecker
	k.checkName("name", c.Name)
	k.checkPresent("dir", c.Dir, "write a folder that survives restarts, such as /var/lib/spillway")
	k.checkTLS(&c.TLS)
	k.checkListenAddr("raft.listen", c.Raft.Listen, "tcp", true)
	k.checkAdvertise("raft.advertise", c.Raft.Advertise, c.Raft.Listen, len(c.Raft.Peers) > 0)
	k.checkRaftPeers(c)
	k.checkDuration("raft.heartbeat", c.Raft.Heartbeat, 50*time.Millisecond, time.Minute)
	k.checkVoterRemoval(&c.Raft)
	k.checkGeo(&c.Geo)
	k.checkDNS(&c.DNS)
	k.checkListenAddr("http.listen", c.HTTP.Listen, "tcp", false)
	k.checkMaxProxied(&c.HTTP)
	k.checkClientListener(c.HTTP.TLSCert, c.HTTP.TLSKey, c.HTTP.TrustedProxies, c.HTTP.ForwardedHeader, c.HTTP.ProxyProtocol)
	k.checkListenAddr("uplink.listen", c.Uplink.Listen, "udp", true)
	k.checkWebhooks(c.Notifications)
	k.checkAdmin(&c.Admin, &c.Metrics)
	k.checkTracing(&c.Tracing)
	return k.problems
}

// checkVoterRemoval bounds the automatic removal of dead voters.
func (k *configChecker) checkVoterRemoval(r *Raft) {
	if d := r.RemoveAfter; d != 0 && (d < time.Minute || d > 365*24*time.Hour) {
		k.addProblem("$.raft.remove_after", fmt.Sprintf("raft.remove_after %s is out of range", strict.FormatDuration(d)), "write a duration from 1m to 8760h, such as 72h, or 0 to remove no voter")
	}
	if r.MinVoters < 3 || r.MinVoters > 9 {
		k.addProblem("$.raft.min_voters", fmt.Sprintf("raft.min_voters %d is out of range", r.MinVoters), "write 3 to 9, because with two voters the loss of one stops every write; to remove no voter, set raft.remove_after: 0")
	}
}

// checkRaftPeers requires this node among the peers at the address it advertises: otherwise it could never
// count its own vote.
func (k *configChecker) checkRaftPeers(c *Global) {
	at := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Raft.Peers)) {
		path, addr := "raft.peers."+strict.QuoteKey(name), c.Raft.Peers[name]
		k.checkName(path, name)
		k.checkDialAddr(path, addr)
		if other, ok := at[addr]; ok {
			k.addProblem("$."+path, fmt.Sprintf("nodes %q and %q have the same address", other, name), "give each node its own")
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
		k.problems = append(k.problems, Problem{
			Path: "$.raft.peers", DependsOn: "$.name", Reason: fmt.Sprintf("the peers do not list this node, %q", c.Name),
			Hint: "list every global node, this one included, in the same way on each node",
		})
	case own != advertised:
		k.problems = append(k.problems, Problem{
			Path: "$.raft.peers." + strict.QuoteKey(c.Name), DependsOn: "$.raft.advertise",
			Reason: fmt.Sprintf("the peers list this node at %s, but it advertises %s", own, advertised), Hint: "write raft.advertise: " + own,
		})
	}
}

// checkAccessLog checks the keys of the access log.
func (k *configChecker) checkAccessLog(a *AccessLog) {
	if a.Format != "json" && a.Format != "text" {
		k.addProblem("$.access_log.format", fmt.Sprintf("unknown format %q", a.Format), "write json or text")
	}
	if !(a.Sample >= 0 && a.Sample <= 1) {
		k.addProblem("$.access_log.sample", fmt.Sprintf("sample %v is not between 0 and 1", a.Sample), "write the share of served requests to log, such as 0.1; failures are always logged")
	}
}

// checkDecisions checks the keys of the log of decisions.
func (k *configChecker) checkDecisions(d *DecisionLog) {
	if d.Memory != 0 && (d.Memory < 1<<20 || d.Memory > 8<<30) {
		k.addProblem("$.decisions.memory", fmt.Sprintf("memory %d is out of range", d.Memory), "write bytes, from 1048576 (1 MiB) to 8589934592 (8 GiB), or 0 for no log")
	}
	if d.MaxBytes < 1<<20 {
		k.addProblem("$.decisions.max_bytes", fmt.Sprintf("max_bytes %d is out of range", d.MaxBytes), "write bytes from 1048576 (1 MiB)")
	}
	if d.File != "" && d.Memory == 0 {
		k.addProblem("$.decisions.file", "the file gets a copy of the log, and decisions.memory 0 keeps none", "take memory out for the default, or take file out")
	}
}

func (c *Regional) findProblems() []Problem {
	var k configChecker
	k.checkName("name", c.Name)
	k.checkName("region", c.Region)
	k.checkPresent("dir", c.Dir, "write a folder that survives restarts, such as /var/lib/spillway")
	k.checkTLS(&c.TLS)
	k.checkListenAddr("http.listen", c.HTTP.Listen, "tcp", true)
	k.checkGatewayHTTP(&c.HTTP, &c.Limits)
	if c.Spec == "" {
		k.checkListenAddr("peer.listen", c.Peer.Listen, "tcp", true)
		k.checkAdvertise("peer.advertise", c.Peer.Advertise, c.Peer.Listen, true)
	}
	k.checkListenAddr("uplink.listen", c.Uplink.Listen, "udp", true)
	switch {
	case c.Spec == "":
		k.checkDialAddrs("globals", c.Globals, "write the uplink address of every global node: globals: [g1.example:7401]; or, without a global tier, spec: FILE")
	case len(c.Globals) > 0:
		k.addProblem("$.spec", "spec is for a gateway without a global tier, and globals names one", "take spec out and use `spillway apply`, or take globals out")
	}
	k.checkAdmin(&c.Admin, &c.Metrics)
	k.checkTracing(&c.Tracing)
	k.checkAccessLog(&c.AccessLog)
	k.checkDecisions(&c.Decisions)
	if c.Limits.MaxStreams < 1 {
		k.addProblem("$.limits.max_streams", fmt.Sprintf("max_streams %d is not positive", c.Limits.MaxStreams), "write how many requests may be open at one time, such as 10000")
	}
	if c.Limits.MaxConnections < 1 {
		k.addProblem("$.limits.max_connections", fmt.Sprintf("max_connections %d is not positive", c.Limits.MaxConnections), "write how many connections may be open at one time, such as 20000")
	}
	k.checkGeo(&c.Geo)
	k.checkDuration("limits.header_timeout", c.Limits.HeaderTimeout, 100*time.Millisecond, time.Minute)
	k.checkDuration("limits.body_timeout", c.Limits.BodyTimeout, time.Second, 10*time.Minute)
	k.checkDuration("limits.hedge_connect", c.Limits.HedgeConnect, 20*time.Millisecond, time.Minute)
	k.checkDuration("drain_timeout", c.DrainTimeout, time.Second, 24*time.Hour)
	return k.problems
}

func (c *Local) findProblems() []Problem {
	var k configChecker
	k.checkName("name", c.Name)
	k.checkName("region", c.Region)
	k.checkName("zone", c.Zone)
	k.checkListenAddr("http.listen", c.HTTP.Listen, "tcp", true)
	if !c.HTTP.Plain || c.TLS != (TLSFiles{}) {
		k.checkTLS(&c.TLS)
	}
	if !c.HTTP.Plain {
		k.checkPresent("dir", c.Dir, "write a folder that survives restarts, such as /var/lib/spillway")
		k.checkAdvertise("http.advertise", c.HTTP.Advertise, c.HTTP.Listen, true)
		k.checkDialAddrs("gateways", c.Gateways, "write the uplink address of every gateway of the region: gateways: [gw1.example:7401]")
	} else {
		k.checkAdvertise("http.advertise", c.HTTP.Advertise, c.HTTP.Listen, len(c.Gateways) > 0)
		if len(c.Gateways) > 0 {
			k.addProblem("$.gateways", "http.plain serves HTTP without TLS, and gateways reach a zone by TLS alone",
				"take http.plain out, or leave gateways empty for a zone that stands alone")
		}
	}
	if c.Spec != "" && (!c.HTTP.Plain || len(c.Gateways) > 0) {
		k.addProblem("$.spec", "a zone behind gateways gets its spec from them", "take spec out and use `spillway apply`, or set http.plain and name no gateways")
	}
	k.checkAdmin(&c.Admin, &c.Metrics)
	k.checkTracing(&c.Tracing)
	k.checkAccessLog(&c.AccessLog)
	k.checkDecisions(&c.Decisions)
	if c.AccessLog.Path != "" && (!c.HTTP.Plain || c.Spec == "") {
		k.addProblem("$.access_log.path", "only a standalone zone with a spec writes an access log; gateways write that of their zones", "set access_log at the gateways, or set http.plain and spec")
	}
	k.checkWorkers(c.Workers)
	if len(c.Workers) == 0 && c.WorkersFile == "" && len(c.Discover.DNS)+len(c.Discover.Kubernetes) == 0 && c.Registration.Listen == "" {
		k.addProblem("$.workers", "the zone has no workers", "list them under workers, name a workers_file, or let them be found by discover.dns, discover.kubernetes or registration")
	}
	k.checkDiscovery(&c.Discover)
	k.checkRegistration(&c.Registration)
	k.checkEndpointPicker(&c.EndpointPicker, c.TLS != (TLSFiles{}))
	k.checkDuration("drain_timeout", c.DrainTimeout, time.Second, 24*time.Hour)
	k.checkDuration("scrape_interval", c.ScrapeInterval, 100*time.Millisecond, time.Minute)
	if c.PrefixIndex < 1<<20 || c.PrefixIndex > 64<<30 {
		k.addProblem("$.prefix_index", fmt.Sprintf("prefix_index %d is out of range", c.PrefixIndex), "write bytes, from 1048576 (1 MiB) to 68719476736 (64 GiB)")
	}
	k.checkResumeTexts("$.resume_texts", c.ResumeTexts)
	k.checkBodyMemory("$.body_memory", c.BodyMemory)
	if c.Policy != "" && !slices.Contains(spec.WorkerPolicies(), c.Policy) {
		k.addProblem("$.policy", fmt.Sprintf("unknown policy %q", c.Policy), strict.SuggestName(c.Policy, spec.WorkerPolicies(), "policies"))
	}
	return k.problems
}

// maxWorkerWeight bounds a worker's weight; local/discover has the same bound.
const maxWorkerWeight = 1000

func (k *configChecker) checkWorkers(list []WorkerEntry) {
	names, urls := map[string]int{}, map[string]int{}
	for i := range list {
		w, path := &list[i], fmt.Sprintf("workers[%d]", i)
		k.checkName(path+".name", w.Name)
		k.checkUnique(names, strings.ToLower(w.Name), i, "worker name", path+".name")
		k.checkURL(path+".url", w.URL)
		if w.GRPC != "" {
			k.checkURL(path+".grpc", w.GRPC)
		}
		k.checkUnique(urls, strings.ToLower(strings.TrimSuffix(w.URL, "/")), i, "worker url", path+".url")
		k.checkDialect(w, path)
		k.checkAccess("$."+path+".", w.Access().FindProblems(w.UsesTLS()))
		for _, p := range w.FindKVProblems() {
			k.addProblem("$."+path+"."+p.Path, p.Reason, p.Hint)
		}
		if !(w.Weight > 0 && w.Weight <= maxWorkerWeight) {
			k.addProblem("$."+path+".weight", fmt.Sprintf("weight %v is not between 0 and 1000", w.Weight), "leave it out for 1; to take the worker out of service, drain it")
		}
	}
}

func (k *configChecker) checkUnique(seen map[string]int, value string, i int, noun, path string) {
	if value == "" {
		return
	}
	if at, ok := seen[value]; ok {
		k.addProblem("$."+path, fmt.Sprintf("duplicate %s %q", noun, value), fmt.Sprintf("the first is at workers[%d]: keep one, or change the other", at))
		return
	}
	seen[value] = i
}

func (c *SimulatedWorker) findProblems() []Problem {
	var k configChecker
	k.checkName("name", c.Name)
	k.checkListenAddr("listen", c.Listen, "tcp", true)
	k.checkSelfRegistration(&c.Register, c.Listen)
	if c.TP < 0 || c.TP > 64 {
		k.addProblem("$.tp", fmt.Sprintf("tp %d is out of range", c.TP), "write how many GPUs run one model, 1 to 64, or leave it out")
	}
	if !(c.Speed > 0 && c.Speed <= 1000) {
		k.addProblem("$.speed", fmt.Sprintf("speed %v is out of range", c.Speed), "write a number above 0 and at most 1000; 1 is the speed of the GPU")
	}
	k.checkDuration("cold_start", c.ColdStart, 0, 10*time.Minute)
	if c.Adapters < 0 || c.Adapters > 256 {
		k.addProblem("$.adapters", fmt.Sprintf("adapters %d is out of range", c.Adapters), "write how many LoRA adapters fit at one time, 1 to 256, or leave it out for none")
	}
	c.checkKVEvents(&k)
	return k.problems
}

func (k *configChecker) checkAdmin(a *Admin, m *MetricsListener) {
	k.checkListenAddr("admin.listen", a.Listen, "tcp", false)
	k.checkListenAddr("metrics.listen", m.Listen, "tcp", false)
	// A longer path does not fit into the kernel's sockaddr_un.
	k.checkGrants(a)
	if len(a.Socket) > 100 {
		k.addProblem("$.admin.socket", fmt.Sprintf("the socket's path has %d characters, more than 100", len(a.Socket)), "choose a shorter one, such as /run/spillway/admin.sock")
	}
}

func (k *configChecker) checkGrants(a *Admin) {
	names := map[string]bool{}
	for i, g := range a.Grants {
		path := fmt.Sprintf("$.admin.grants[%d]", i)
		switch {
		case g.Name == "":
			k.addProblem(path, "the grant has no name", "write the name in the operator's certificate, or any name for a token")
		case names[g.Name]:
			k.addProblem(path+".name", fmt.Sprintf("two grants are for %q", g.Name), "keep one of them")
		}
		names[g.Name] = true
		if !slices.Contains([]string{"viewer", "operator", "admin"}, g.Role) {
			k.addProblem(path+".role", fmt.Sprintf("unknown role %q", g.Role), "write viewer, operator or admin")
		}
		if g.Token != "" && !spec.IsHashedKey(g.Token) {
			k.addProblem(path+".token", "the token is not a hash", "run `spillway config key`, give the token that it prints to the operator, and write the sha256:... here")
		}
	}
	if len(a.Grants) > 0 && a.Listen == "" {
		k.addProblem("$.admin.grants", "grants are for callers from the network, and admin.listen is not set", "set admin.listen, or leave the grants out")
	}
}

func (k *configChecker) checkPresent(path, value, hint string) {
	if value == "" {
		k.addProblem("$."+path, path+" is missing", hint)
	}
}

func (k *configChecker) checkName(path, value string) {
	if value == "" {
		k.addProblem("$."+path, path+" is missing", "write a name of lower-case letters, digits and hyphens")
		return
	}
	if why := spec.LabelProblem(value); why != "" {
		k.addProblem("$."+path, why, "use lower-case letters, digits and hyphens, at most 63")
	}
}

func (k *configChecker) checkTLS(t *TLSFiles) {
	const hint = "`spillway certs dev` makes a certificate, a key and an authority to try with"
	if *t == (TLSFiles{}) {
		k.addProblem("$.tls", "tls is missing: every process needs a certificate to connect to the others", hint)
		return
	}
	k.checkPresent("tls.cert", t.Cert, hint)
	k.checkPresent("tls.key", t.Key, hint)
	k.checkPresent("tls.ca", t.CA, hint)
}

func (k *configChecker) checkGeo(g *Geo) {
	if d := g.MeasuredFor; d != 0 && (d < time.Minute || d > 24*time.Hour) {
		k.addProblem("$.geo.measured_for", fmt.Sprintf("geo.measured_for %s is out of range", strict.FormatDuration(d)),
			"write a duration from 1m to 24h, or 0s to steer by distance alone")
	}
}

func (k *configChecker) checkDuration(path string, d, low, high time.Duration) {
	if d < low || d > high {
		k.addProblem("$."+path, fmt.Sprintf("%s %s is out of range", path, strict.FormatDuration(d)),
			fmt.Sprintf("write a duration from %s to %s", strict.FormatDuration(low), strict.FormatDuration(high)))
	}
}

// checkListenAddr checks a listening address; port 0 means any free port. network distinguishes UDP from TCP
// ports; DNS uses both.
func (k *configChecker) checkListenAddr(path, addr, network string, needed bool) {
	if addr == "" {
		if needed {
			k.addProblem("$."+path, path+" is empty", "write host:port, such as 0.0.0.0:8080, or leave the key out for the default")
		}
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !isPortNumber(port, 0) || strings.ContainsAny(host, " /") {
		k.addProblem("$."+path, fmt.Sprintf("%q is not an address to listen on", addr), "write host:port, such as 0.0.0.0:8080 or [::1]:8080")
		return
	}
	k.checkAddrFree(path, addr, port, network)
}

func (k *configChecker) checkAddrFree(path, addr, port, network string) {
	if port == "0" {
		return
	}
	if k.listenAddrs == nil {
		k.listenAddrs = map[string]string{}
	}
	nets := []string{network}
	if network == "dns" {
		nets = []string{"tcp", "udp"}
	}
	for _, n := range nets {
		if other, ok := k.listenAddrs[n+" "+addr]; ok {
			k.addProblem("$."+path, fmt.Sprintf("%s and %s are both %s", other, path, addr), "give each its own port")
			return
		}
		k.listenAddrs[n+" "+addr] = path
	}
}

func isPortNumber(s string, low int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= low && n <= 65535 && s == strconv.Itoa(n)
}

// checkAdvertise checks an advertised address. If one is needed, an address that means every interface cannot
// replace it.
func (k *configChecker) checkAdvertise(path, advertise, listen string, needed bool) {
	if advertise != "" {
		k.checkDialAddr(path, advertise)
		return
	}
	if needed && isUnspecifiedAddr(listen) {
		k.addProblem("$."+path, fmt.Sprintf("other machines cannot reach %s", listen), fmt.Sprintf("write %s: host:port with an address of this machine that they can reach", path))
	}
}

// isUnspecifiedAddr reports whether an address means every interface of the machine.
func isUnspecifiedAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

func (k *configChecker) checkDialAddrs(path string, addrs []string, hint string) {
	if len(addrs) == 0 {
		k.addProblem("$."+path, path+" is empty", hint)
	}
	for i, a := range addrs {
		here := fmt.Sprintf("%s[%d]", path, i)
		k.checkDialAddr(here, a)
		if slices.Index(addrs, a) < i {
			k.addProblem("$."+here, fmt.Sprintf("duplicate address %q", a), "keep one")
		}
	}
}

func (k *configChecker) checkDialAddr(path, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || !isPortNumber(port, 1) || strings.ContainsAny(host, " /") {
		k.addProblem("$."+path, fmt.Sprintf("%q is not an address to connect to", addr), "write host:port, such as 10.0.0.1:7401")
		return
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		k.addProblem("$."+path, fmt.Sprintf("no client can connect to %s", addr), "write an address of the machine instead of "+host)
	}
}

func (k *configChecker) checkURL(path, s string) {
	if s == "" {
		k.addProblem("$."+path, path+" is missing", `write scheme, host and port: "http://10.0.0.7:8000"`)
		return
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		k.addProblem("$."+path, "the url is not one of an HTTP server", `write scheme, host and port, no user and no query: "http://10.0.0.7:8000"`)
		return
	}
	if strings.Trim(u.Path, "/") != "" {
		k.addProblem("$."+path, fmt.Sprintf("the url has the path %q", u.Path), "leave the path out: "+u.Scheme+"://"+u.Host)
	}
}
