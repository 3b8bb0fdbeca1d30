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

// loadOptions holds the flags of the load command.
type loadOptions struct {
	urls, nameServers, sourceAddrs, models   []string
	service, keyFile, traceFile              string
	path, output, recordFile                 string
	port                                     int
	rate                                     float64
	duration                                 time.Duration
	promptTokens, outputTokens, sharedTokens int
	traceScale                               load.Scale
	stream                                   bool
	seed                                     uint64
	stepRegion, stepNetwork                  string
	admin                                    adminTarget // the node that reports the capacity of the region of a step
}

func newLoadCommand() *cobra.Command {
	r := loadOptions{}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Send requests at a rate or from a recorded trace, and report latencies and errors",
		Long: `Send requests at a rate or from a recorded trace, and report latencies and errors.

The load is open-loop: each request is sent at its scheduled time, even if earlier ones have no response yet, so a slow
server does not reduce the load. Latency is measured from the scheduled time (no coordinated omission). Rejected requests
are counted by status and code and are not part of latencies. A request that received no response bytes is retried once
at another address.`,
		Example: `  spillway load --url http://127.0.2.1:8080 --key-file acme.key --rate 5 --for 30s
  spillway load --dns 127.0.1.1:5300,127.0.1.2:5300 --service chat.spillway.test --port 8080 --key-file acme.key --rate 20
  spillway load --dns 127.0.1.1:5300 --service chat.spillway.test --port 8080 --key-file acme.key \
      --trace AzureLLMInferenceTrace_conv.csv.gz --for 2m --trace-rate 0.5
  spillway load --step virginia --client-network 127.100.0.0/16 --dns 127.0.1.1:5300 --service chat.spillway.test --port 8080 \
      --key-file acme.key --model qwen2.5-7b --prompt-tokens 1000 --output-tokens 8 --for 3m`,
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.runLoad(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	r.addFlags(cmd)
	return cmd
}

func (r *loadOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&r.urls, "url", nil, "base URLs to send to in turn")
	f.StringVar(&r.service, "service", "", "DNS name to resolve and send to, instead of --url")
	f.StringSliceVar(&r.nameServers, "dns", nil, "name servers for --service, host:port")
	f.IntVar(&r.port, "port", 0, "port of the service (default 80)")
	f.StringSliceVar(&r.sourceAddrs, "source", nil, "source addresses to use in turn, to simulate clients in different locations")
	f.StringVar(&r.keyFile, "key-file", "", "file with the API key")
	f.StringSliceVar(&r.models, "model", []string{"llama-3.1-8b", "qwen2.5-7b"}, "models to request, in equal shares")
	f.StringVar(&r.path, "path", "/v1/chat/completions", "path of the requests")
	f.BoolVar(&r.stream, "stream", true, "request streaming responses, one event per token")
	f.DurationVar(&r.duration, "for", 30*time.Second, "how long to send; 0: to the end of the trace")
	f.Float64Var(&r.rate, "rate", 2, "requests per second, Poisson arrivals")
	f.IntVar(&r.promptTokens, "prompt-tokens", 500, "median prompt length, in tokens")
	f.IntVar(&r.outputTokens, "output-tokens", 60, "median output length, in tokens")
	f.IntVar(&r.sharedTokens, "shared-tokens", 0, "length of a prompt prefix common to all requests, in tokens")
	f.StringVar(&r.traceFile, "trace", "", "replay this file instead: Azure 2023 (.csv), Mooncake (.jsonl) or a file of --record; may be gzipped")
	f.Float64Var(&r.traceScale.Rate, "trace-rate", 1, "factor on the speed of the trace")
	f.Float64Var(&r.traceScale.Tokens, "trace-tokens", 1, "factor on the lengths in the trace")
	f.IntVar(&r.traceScale.MaxPrompt, "max-prompt", 0, "truncate longer prompts, in tokens")
	f.IntVar(&r.traceScale.MaxOutput, "max-output", 0, "truncate longer outputs, in tokens")
	f.Uint64Var(&r.seed, "seed", 1, "seed of random choices; the same seed repeats a run")
	f.StringVar(&r.stepRegion, "step", "", "instead, test a demand step in this region: 0.7 of its capacity for a minute, then 1.3 of it, and show how its\nload settles; needs --client-network")
	f.StringVar(&r.stepNetwork, "client-network", "", "network of this machine that the clients of --step use as source, such as 127.100.0.0/16")
	addDeprecatedFlag(f, "place", "client-network")
	f.StringVar(&r.recordFile, "record", "", "record requests and their outcomes to this file, for --trace and simulations")
	r.admin.addFlags(cmd)
	addOutputFlag(cmd, &r.output)
}

func (r *loadOptions) runLoad(ctx context.Context, out, errOut io.Writer) error {
	if r.stepRegion != "" {
		return r.runStep(ctx, out, errOut)
	}
	cfg, closeSource, err := r.buildLoadConfig()
	if err != nil {
		return err
	}
	defer closeSource()
	finish, err := r.startRecording(&cfg)
	if err != nil {
		return err
	}
	g, err := load.NewGenerator(cfg)
	if err != nil {
		return errors.Join(err, finish())
	}
	stop := startLoadProgress(errOut, g, r.duration)
	err = g.Run(ctx)
	stop()
	err = errors.Join(err, finish())
	rep := g.CurrentReport()
	if isStructured(r.output) {
		return errors.Join(err, printStructured(out, r.output, rep))
	}
	return errors.Join(err, rep.WriteTables(out))
}

// startRecording records the run if --record is set. finish writes the rest of the file.
func (r *loadOptions) startRecording(cfg *load.Config) (finish func() error, err error) {
	if r.recordFile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(r.recordFile)
	if err != nil {
		return nil, fmt.Errorf("recording the run: %w", err)
	}
	cfg.Recorder = load.NewRecorder(f)
	return func() error { return errors.Join(cfg.Recorder.Flush(), f.Close()) }, nil
}

// buildLoadConfig builds the config of a run from the flags. The second result closes the source.
func (r *loadOptions) buildLoadConfig() (load.Config, func(), error) {
	if (len(r.urls) > 0) == (r.service != "") || (r.service != "") != (len(r.nameServers) > 0) {
		return load.Config{}, nil, newUsageError("load --url http://HOST:PORT | --service NAME --dns SERVER:PORT", "")
	}
	source, closeSource, err := r.openSource()
	if err != nil {
		return load.Config{}, nil, err
	}
	key, err := r.readAPIKey()
	if err != nil {
		return load.Config{}, nil, err
	}
	clients, err := r.parseClients()
	if err != nil {
		return load.Config{}, nil, err
	}
	return load.Config{
		Source: source, Clients: clients, Models: r.models, Key: key, Path: r.path, Stream: r.stream, Seed: r.seed,
		Target: load.Target{URLs: r.urls, Service: r.service, DNS: r.nameServers, Port: r.port},
	}, closeSource, nil
}

func (r *loadOptions) openSource() (load.ArrivalSource, func(), error) {
	r.traceScale.For = r.duration
	if r.traceFile != "" {
		t, err := load.OpenTrace(r.traceFile, r.seed)
		if err != nil {
			return nil, nil, err
		}
		return load.ScaleSource(t, r.traceScale), func() { t.Close() }, nil
	}
	p := load.PoissonConfig{
		Rate: r.rate, For: r.duration, Seed: r.seed,
		Prompt: makeTypicalLengths(r.promptTokens), Output: makeTypicalLengths(r.outputTokens),
	}
	if r.sharedTokens > 0 {
		p.Groups, p.PrefixTokens = 1, r.sharedTokens
	}
	s, err := load.NewPoissonSource(p)
	return s, func() {}, err
}

func (r *loadOptions) readAPIKey() (string, error) {
	if r.keyFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(r.keyFile)
	if err != nil {
		return "", fmt.Errorf("reading the API key: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (r *loadOptions) parseClients() ([]load.Client, error) {
	var out []load.Client
	for _, s := range r.sourceAddrs {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("--source %q: write an address of this machine, such as 127.100.0.1", s)
		}
		out = append(out, load.Client{Name: s, Source: a})
	}
	return out, nil
}
