package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/runtimetune"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/credential"
)

// upOptions holds the flags of the up command.
type upOptions struct {
	workerURLs, models []string
	listenAddr         string
	keyTenant          string // the tenant that gets a key
	workerKeyFile      string // the file with the API key for the workers
	dir                string
	accessLog          string
	traceEndpoint      string
	printConfig        bool
	logLevel           string
}

func newUpCommand() *cobra.Command {
	var u upOptions
	cmd := &cobra.Command{
		Use:   "up --worker URL [--worker URL]...",
		Short: "Serve running inference engines at one address, from one process",
		Long: `Serve running inference engines (vLLM, SGLang, llama.cpp, Ollama or any OpenAI-compatible server) at one address: a gateway
and a zone in one process, without a global tier, DNS, certificates or privileges. Engines may start later: Spillway waits
for them. With --key clients need an API key; without it every client that reaches the address is served. --api-key-file
is the key that Spillway sends to engines that require one.`,
		Example: "  spillway up --worker http://127.0.0.1:8000\n  spillway up --worker http://gpu1:8000 --worker http://gpu2:8000 --listen 0.0.0.0:8080 --key acme --dir ./state",
		GroupID: "start",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(cmd, u.logLevel)
			if err != nil {
				return err
			}
			return u.runUp(cmd.Context(), cmd.OutOrStdout(), log)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&u.workerURLs, "worker", nil, "URL of an engine, such as http://127.0.0.1:8000; repeat it for more")
	f.StringVar(&u.listenAddr, "listen", "127.0.0.1:8080", "address for clients, host:port")
	f.StringArrayVar(&u.models, "model", nil, "serve only this model; repeat it for more (default: every model that the engines list)")
	f.StringVar(&u.keyTenant, "key", "", "require an API key: create one for the tenant of this name and print it once")
	f.StringVar(&u.workerKeyFile, "api-key-file", "", "send the key in this file to every worker; the file is reread when it changes")
	f.StringVar(&u.dir, "dir", "", "folder for the spec, drains and used budgets (default: a temporary folder that is removed at the end)")
	f.StringVar(&u.traceEndpoint, "traces", "", "export a trace of each request over OTLP to this URL, such as http://127.0.0.1:4317")
	f.StringVar(&u.accessLog, "access-log", "", "append one line of JSON for each request to this file; - is standard output")
	f.BoolVar(&u.printConfig, "config", false, "print the equivalent config for spillway local -c, and exit")
	addLogLevelFlag(cmd, &u.logLevel, "warn")
	return cmd
}

func (u *upOptions) runUp(ctx context.Context, out io.Writer, log *slog.Logger) error {
	if err := u.checkWorkers(); err != nil {
		return err
	}
	if err := u.checkWorkerKey(); err != nil {
		return err
	}
	dir, remove, err := u.openStateDir()
	if err != nil {
		return err
	}
	defer remove()
	c, err := u.buildConfig(dir)
	if err != nil {
		return err
	}
	if u.printConfig {
		_, err := out.Write(config.Encode(c))
		return err
	}
	key, note, err := u.writeSpec(c.Spec)
	if err != nil {
		return err
	}
	growDescriptors(initialDescriptors)
	go runSchedulerKeepAlive(ctx)
	go runtimetune.TuneGC(ctx)
	node, err := openZoneWithGateway(c, log)
	if err != nil {
		return err
	}
	if err := node.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	base := "http://" + dialableAddr(node.gateway.HTTPAddr().String())
	fmt.Fprintf(out, "Spillway %s serves %s at %s\n", version, formatPlural(len(u.workerURLs), "worker"), base)
	u.printDetails(out, c.Spec, key, note)
	node.watchWorkers(ctx, func(w *admin.WorkerStatus) { printWorker(out, w) }, func(model string) {
		printCurlExample(out, base, key, model)
	})
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping...")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	if err := node.Stop(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "stopped.")
	return nil
}

// checkWorkers validates and normalizes the URLs of --worker.
func (u *upOptions) checkWorkers() error {
	if len(u.workerURLs) == 0 {
		return newUsageError("up --worker URL [--worker URL]...", "URL is the address of a running engine, such as http://127.0.0.1:8000")
	}
	for i, w := range u.workerURLs {
		at, err := url.Parse(w)
		switch {
		case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "":
			return fmt.Errorf("--worker %q is not the address of an HTTP server: write scheme, host and port, such as http://127.0.0.1:8000", w)
		case at.User != nil || at.RawQuery != "" || at.Fragment != "":
			return fmt.Errorf("--worker: write only scheme, host and port, without user and query: %s://%s", at.Scheme, at.Host)
		case strings.Trim(at.Path, "/") != "":
			return fmt.Errorf("--worker %q has the path %s: omit it, Spillway adds it: %s://%s", w, at.Path, at.Scheme, at.Host)
		}
		u.workerURLs[i] = at.Scheme + "://" + strings.ToLower(at.Host)
		if slices.Contains(u.workerURLs[:i], u.workerURLs[i]) {
			return fmt.Errorf("--worker %s is given twice: name each engine once", u.workerURLs[i])
		}
	}
	return nil
}

// checkWorkerKey makes the path of --api-key-file absolute and reads the file once.
func (u *upOptions) checkWorkerKey() error {
	if u.workerKeyFile == "" {
		return nil
	}
	file, err := filepath.Abs(u.workerKeyFile)
	if err != nil {
		return fmt.Errorf("--api-key-file %s: %w", u.workerKeyFile, err)
	}
	u.workerKeyFile = file
	if err := credential.New(config.WorkerAccess{APIKeyFile: file}).Value().Err; err != nil {
		reason := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "api_key_file: "), "open "+file+": ")
		return fmt.Errorf("--api-key-file %s: %s; the file must contain only the API key of the workers", file, reason)
	}
	return nil
}

// openStateDir returns the folder for state and a function that cleans up at the end.
func (u *upOptions) openStateDir() (string, func(), error) {
	if u.dir == "" {
		dir, err := os.MkdirTemp("", "spillway-up-")
		if err != nil {
			return "", nil, fmt.Errorf("creating a folder for the state: %w", err)
		}
		return dir, func() { os.RemoveAll(dir) }, nil
	}
	dir, err := filepath.Abs(u.dir)
	if err == nil && !u.printConfig {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", nil, fmt.Errorf("creating the folder of --dir: %w", err)
	}
	return dir, func() {}, nil
}

// buildConfig returns the equivalent config of a local instance.
func (u *upOptions) buildConfig(dir string) (*config.Local, error) {
	_, port, err := net.SplitHostPort(u.listenAddr)
	if err != nil {
		return nil, fmt.Errorf("--listen %q is not an address: write host:port, such as 127.0.0.1:8080", u.listenAddr)
	}
	c := &config.Local{
		Role: config.RoleLocal, Name: "up-" + port, Region: "here", Zone: "a", Dir: dir, Spec: filepath.Join(dir, "spec.yaml"),
		HTTP: config.LocalHTTP{Listen: u.listenAddr, Plain: true},
	}
	c.AccessLog.Path = u.accessLog
	if u.traceEndpoint != "" {
		c.Tracing.Endpoint, c.Tracing.Sample = u.traceEndpoint, 1
	}
	c.Admin.Socket = filepath.Join(admin.RuntimeDir(), "local-"+c.Name+".sock")
	for i, w := range u.workerURLs {
		c.Workers = append(c.Workers, config.WorkerEntry{Name: fmt.Sprintf("w%d", i+1), URL: w, Models: u.models, APIKeyFile: u.workerKeyFile})
	}
	cfg, err := config.Decode(filepath.Join(dir, "up.yaml"), config.Encode(c))
	if err != nil {
		return nil, err
	}
	return cfg.(*config.Local), nil
}

// writeSpec creates the spec file if it does not exist, with the hash of a new key for the tenant of --key. The key itself is
// not stored.
func (u *upOptions) writeSpec(path string) (key, note string, err error) {
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		note, err = u.checkExistingSpec(path, text)
		return "", note, err
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("reading the spec: %w", err)
	}
	s := &spec.Spec{}
	if u.keyTenant != "" {
		if key, err = newAPIKey(); err != nil {
			return "", "", err
		}
		s.Tenants = []spec.Tenant{{Name: u.keyTenant, Keys: []string{spec.HashKey(key)}}}
	}
	text = append([]byte("# `spillway config describe spec` describes every key. Changes to this file take effect within a second.\n"), spec.Encode(s)...)
	if _, err := spec.DecodeStandalone("--key", text); err != nil {
		return "", "", err
	}
	return key, "", os.WriteFile(path, text, 0o600)
}

// checkExistingSpec validates the spec of an earlier run, which contains hashes of keys but no keys.
func (u *upOptions) checkExistingSpec(path string, text []byte) (note string, err error) {
	s, err := spec.DecodeStandalone(path, text)
	if err != nil || u.keyTenant == "" {
		return "", err
	}
	if t := s.FindTenant(u.keyTenant); t == nil || len(t.Keys)+len(t.TimedKeys) == 0 {
		return "", fmt.Errorf("%s is from an earlier run and has no key for tenant %q: add the hash that `spillway config key` prints, or remove the file", path, u.keyTenant)
	}
	return fmt.Sprintf("the key of tenant %s was printed by an earlier run; `spillway config key` creates another one for %s", u.keyTenant, path), nil
}

// newAPIKey generates a random API key of 256 bits.
func newAPIKey() (string, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("generating a key: %w", err)
	}
	return "sk-" + base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// printDetails prints the path of the spec, the key and how to see the status.
func (u *upOptions) printDetails(out io.Writer, specPath, key, note string) {
	if u.dir != "" {
		fmt.Fprintf(out, "  spec: %s (edit it to add tenants, limits and aliases)\n", specPath)
	}
	switch {
	case key != "":
		fmt.Fprintf(out, "  key of tenant %s, shown once: %s\n", u.keyTenant, key)
	case note != "":
		fmt.Fprintln(out, "  note:", note)
	case !isLoopback(u.listenAddr):
		fmt.Fprintln(out, "  warning: no API key is required: every client that reaches this address can use the workers; --key NAME requires one")
	}
	fmt.Fprintf(out, "  status: %s status --workers\n  console in a browser: %s console\n", os.Args[0], os.Args[0])
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// dialableAddr replaces an unspecified address (all interfaces) by loopback, for printed URLs.
func dialableAddr(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// workerPollInterval is how often the workers' state is read while some are not ready.
const workerPollInterval = 200 * time.Millisecond

// watchWorkers calls changed for a worker whenever its workerLineKey changes, until all are ready, and ready once, with the
// first model that has a ready worker.
func (s *zoneWithGateway) watchWorkers(ctx context.Context, changed func(*admin.WorkerStatus), ready func(model string)) {
	last := map[string]string{}
	tick := time.NewTicker(workerPollInterval)
	defer tick.Stop()
	for reported := false; ; {
		workers := s.zone.Status().Workers
		slices.SortFunc(workers, func(a, b admin.WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
		waiting := false
		for i := range workers {
			w := &workers[i]
			if now := workerLineKey(w); now != last[w.Name] {
				last[w.Name] = now
				changed(w)
			}
			waiting = waiting || w.State != admin.StateReady
		}
		if model := firstReadyModel(workers); model != "" && !reported {
			reported = true
			ready(model)
		}
		if !waiting {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// firstReadyModel returns a model of the first ready worker that has one, or "".
func firstReadyModel(workers []admin.WorkerStatus) string {
	for i := range workers {
		if w := &workers[i]; w.State == admin.StateReady {
			for _, m := range w.Models {
				if w.ModelStates[m] == "" {
					return m
				}
			}
		}
	}
	return ""
}

// workerLineKey identifies the printed line of a worker: its state, the cause, and the number of digits of the failed
// attempts, so that a failing worker is printed after 1, 10, 100 and 1000 attempts and not after each.
func workerLineKey(w *admin.WorkerStatus) string {
	cause := strings.TrimSuffix(w.Reason, " ("+formatPlural(w.Attempts, "attempt")+")")
	return fmt.Sprintf("%s\x00%s\x00%d", w.State, cause, len(strconv.Itoa(w.Attempts)))
}

// keyHintReplacer replaces the YAML key in a cause's hint by the flag that sets it.
var keyHintReplacer = strings.NewReplacer("key: set api_key_file)", "key: set --api-key-file)", "key: check api_key_file)", "key: check --api-key-file)")

func printWorker(out io.Writer, w *admin.WorkerStatus) {
	if w.State == admin.StateReady {
		fmt.Fprintf(out, "  %s %s: ready, engine %s, models %s\n", w.Name, w.URL, w.Engine, dashIfEmpty(strings.Join(w.Models, ", ")))
		return
	}
	cause := strings.TrimPrefix(cmp.Or(w.Reason, w.State), admin.NotReady)
	fmt.Fprintf(out, "  %s %s: %s%s\n", w.Name, w.URL, admin.NotReady, keyHintReplacer.Replace(cause))
}

func printCurlExample(out io.Writer, base, key, model string) {
	auth := ""
	if key != "" {
		auth = ` -H "Authorization: Bearer ` + key + `"`
	}
	fmt.Fprintf(out, "  try it:\n    curl %s/v1/chat/completions%s -H 'Content-Type: application/json' -d '{\"model\":%q,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n", base, auth, model)
}

func formatPlural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
