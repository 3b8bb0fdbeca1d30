package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/load"
)

// loadRun holds the flags of one run of load.
type loadRun struct {
	urls, dns, sources, models []string
	service, keyFile, trace    string
	path, output, record       string
	port                       int
	rate                       float64
	length                     time.Duration
	prompt, outTokens, shared  int
	scale                      load.Scale
	stream                     bool
	seed                       uint64
	step, place                string
	to                         target // asked what the region of a step can do
}

func loadCommand() *cobra.Command {
	r := loadRun{}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Send requests at a rate or from a recorded trace, and report what came of each",
		Long: `Send requests at a rate or from a recorded trace, and report what came of each.

The loop is open: a request leaves when it is due, whatever became of the ones before it, so a slow system cannot hide
behind a slow client. Latency runs from when a request was due. Refused requests are counted by status and code and
never mixed into latencies. A request of which nothing was received is sent elsewhere once.`,
		Example: `  spillway load --url http://127.0.2.1:8080 --key-file acme.key --rate 5 --for 30s
  spillway load --dns 127.0.1.1:5300,127.0.1.2:5300 --service chat.spillway.test --port 8080 --key-file acme.key --rate 20
  spillway load --dns 127.0.1.1:5300 --service chat.spillway.test --port 8080 --key-file acme.key \
      --trace AzureLLMInferenceTrace_conv.csv.gz --for 2m --trace-rate 0.5
  spillway load --step virginia --place 127.100.0.0/16 --dns 127.0.1.1:5300 --service chat.spillway.test --port 8080 \
      --key-file acme.key --model qwen2.5-7b --prompt-tokens 1000 --output-tokens 8 --for 3m`,
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	r.flags(cmd)
	return cmd
}

func (r *loadRun) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&r.urls, "url", nil, "base URLs to send to in turn")
	f.StringVar(&r.service, "service", "", "DNS name to resolve and send to, instead of --url")
	f.StringSliceVar(&r.dns, "dns", nil, "name servers for --service, host:port")
	f.IntVar(&r.port, "port", 0, "port of the service (default 80)")
	f.StringSliceVar(&r.sources, "source", nil, "addresses to send from in turn, to pose as clients in other places")
	f.StringVar(&r.keyFile, "key-file", "", "file with the API key")
	f.StringSliceVar(&r.models, "model", []string{"llama-3.1-8b", "qwen2.5-7b"}, "models to ask for, in equal parts")
	f.StringVar(&r.path, "path", "/v1/chat/completions", "path to post to")
	f.BoolVar(&r.stream, "stream", true, "ask for one event per token")
	f.DurationVar(&r.length, "for", 30*time.Second, "how long to send; 0 to the end of the trace")
	f.Float64Var(&r.rate, "rate", 2, "requests per second, Poisson")
	f.IntVar(&r.prompt, "prompt-tokens", 500, "median prompt length, in tokens")
	f.IntVar(&r.outTokens, "output-tokens", 60, "median answer length, in tokens")
	f.IntVar(&r.shared, "shared-tokens", 0, "prompt tokens that all requests share, at the front")
	f.StringVar(&r.trace, "trace", "", "replay this file instead: Azure 2023 (.csv) or Mooncake (.jsonl), or what --record wrote; may be gzipped")
	f.Float64Var(&r.scale.Rate, "trace-rate", 1, "play the trace this much faster")
	f.Float64Var(&r.scale.Tokens, "trace-tokens", 1, "multiply the trace's lengths by this")
	f.IntVar(&r.scale.MaxPrompt, "max-prompt", 0, "cut longer prompts, in tokens")
	f.IntVar(&r.scale.MaxOutput, "max-output", 0, "cut longer answers, in tokens")
	f.Uint64Var(&r.seed, "seed", 1, "repeats a run's choices")
	f.StringVar(&r.step, "step", "", "instead, have clients ask for 0.7 of this region's capacity for a minute and then for 1.3 of it, and show how\nits load settles; with --place")
	f.StringVar(&r.place, "place", "", "network of this machine that the clients of --step ask from, such as 127.100.0.0/16")
	f.StringVar(&r.record, "record", "", "write what is asked and what comes of it to this file; --trace and the lab's simulations play it again")
	r.to.flags(cmd)
	outputFlag(cmd, &r.output)
}

func (r *loadRun) run(ctx context.Context, out, errOut io.Writer) error {
	if r.step != "" {
		return r.runStep(ctx, out, errOut)
	}
	cfg, closeSource, err := r.config()
	if err != nil {
		return err
	}
	defer closeSource()
	finish, err := r.recording(&cfg)
	if err != nil {
		return err
	}
	g, err := load.New(cfg)
	if err != nil {
		return errors.Join(err, finish())
	}
	stop := showProgress(errOut, g, r.length)
	err = g.Run(ctx)
	stop()
	err = errors.Join(err, finish())
	rep := g.Report()
	if r.output == "json" {
		return errors.Join(err, printJSON(out, rep))
	}
	return errors.Join(err, rep.Print(out))
}

// recording writes the run's record where one is asked for.
func (r *loadRun) recording(cfg *load.Config) (finish func() error, err error) {
	if r.record == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(r.record)
	if err != nil {
		return nil, fmt.Errorf("recording the run: %w", err)
	}
	cfg.Record = load.NewRecorder(f)
	return func() error { return errors.Join(cfg.Record.Flush(), f.Close()) }, nil
}

// config turns the flags into a run. The second result closes what the source reads.
func (r *loadRun) config() (load.Config, func(), error) {
	if (len(r.urls) > 0) == (r.service != "") || (r.service != "") != (len(r.dns) > 0) {
		return load.Config{}, nil, errors.New("say where to: --url http://HOST:PORT, or --service NAME with --dns SERVER:PORT")
	}
	source, closeSource, err := r.source()
	if err != nil {
		return load.Config{}, nil, err
	}
	key, err := r.key()
	if err != nil {
		return load.Config{}, nil, err
	}
	clients, err := r.clients()
	if err != nil {
		return load.Config{}, nil, err
	}
	return load.Config{
		Source: source, Clients: clients, Models: r.models, Key: key, Path: r.path, Stream: r.stream, Seed: r.seed,
		Target: load.Target{URLs: r.urls, Service: r.service, DNS: r.dns, Port: r.port},
	}, closeSource, nil
}

func (r *loadRun) source() (load.Source, func(), error) {
	r.scale.For = r.length
	if r.trace != "" {
		t, err := load.OpenTrace(r.trace, r.seed)
		if err != nil {
			return nil, nil, err
		}
		return load.Scaled(t, r.scale), func() { t.Close() }, nil
	}
	p := load.Poisson{
		Rate: r.rate, For: r.length, Seed: r.seed,
		Prompt: lengths(r.prompt), Output: lengths(r.outTokens),
	}
	if r.shared > 0 {
		p.Groups, p.PrefixTokens = 1, r.shared
	}
	s, err := load.NewPoisson(p)
	return s, func() {}, err
}

func (r *loadRun) key() (string, error) {
	if r.keyFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(r.keyFile)
	if err != nil {
		return "", fmt.Errorf("reading the API key: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (r *loadRun) clients() ([]load.Client, error) {
	var out []load.Client
	for _, s := range r.sources {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("--source %q: write an address of this machine, such as 127.100.0.1", s)
		}
		out = append(out, load.Client{Name: s, Source: a})
	}
	return out, nil
}
