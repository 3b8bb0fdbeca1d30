package local

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
	"github.com/spillway-lb/spillway/local/sched"
)

// Config configures an Agent.
type Config struct {
	// Name, Region and Zone are the instance's path. They must match the certificate.
	Name, Region, Zone string
	// Dir persists the last directive across restarts; empty disables this.
	Dir string
	// Listen is the address for requests, "host:port".
	Listen string
	// Network replaces the system's network towards clients, workers and gateways when a zone runs inside one
	// process. Default nil: the system's network.
	Network netif.HostNetwork
	// Advertise is the address where gateways reach Listen. Default: the bound address.
	Advertise string
	// Plain serves HTTP without TLS and without client authentication, for a standalone zone.
	Plain bool
	// NoFastPath uses net/http for all serving and for all calls to workers.
	NoFastPath bool
	// Certs are this instance's certificates. Required unless Plain is set and Gateways is empty.
	Certs *identity.Certs
	// InternalCerts means that Certs were made for a process that includes the gateway. The registration listener
	// then uses RegistrationCerts instead, or no TLS where those are nil.
	InternalCerts     bool
	RegistrationCerts *identity.Certs
	// Gateways are the uplink addresses of all gateways of the region.
	Gateways []string
	// Workers are the static workers; WorkersFile is a watched file with more.
	Workers     []discover.Worker
	WorkersFile string
	// Discover finds workers in DNS and Kubernetes; Registration lets workers register themselves.
	Discover     config.Discovery
	Registration config.Registration
	// EndpointPicker is the listener for proxies that ask for endpoints.
	EndpointPicker config.EndpointPicker
	// ScrapeInterval is the time between two scrapes of a worker, jittered by 10 %. Default 1s.
	ScrapeInterval time.Duration
	// UplinkInterval is the time between summaries to the gateways. Default 250ms.
	UplinkInterval time.Duration
	// ResumeTexts bounds the memory of texts from which streams could be continued, in bytes. Zero means 64 MiB.
	ResumeTexts int64
	// BodyMemory bounds the memory of request bodies, in bytes. Zero means 1 GiB.
	BodyMemory int64
	// BodyTimeout bounds the time for a request body to arrive. Zero means 30 s.
	BodyTimeout time.Duration
	// PrefixIndex bounds the memory of the prefix index, in bytes. Default 128 MiB.
	PrefixIndex int
	// DecisionBytes bounds the log of decisions in memory, in bytes; 0: none is kept.
	DecisionBytes int64
	// DecisionFile gets a copy of the log of decisions, of at most DecisionFileBytes; empty: none.
	DecisionFile      string
	DecisionFileBytes int64
	// Policy overrides the policy of the spec; empty follows the spec.
	Policy string
	// Spec is in force until the first directive; nil means defaults.
	Spec *spec.Spec
	// SpecFile is read and watched by a standalone zone, instead of Spec.
	SpecFile string
	// Queue and Health configure the request queue and the worker health checks; zero fields take their defaults.
	Queue  queue.Config
	Health health.Config
	// ModelLoad configures the loading of models; zero fields take their defaults.
	ModelLoad modelload.Config
	// AdminSocket, AdminListen and MetricsListen open the admin interface; empty ones stay closed.
	AdminSocket, AdminListen, MetricsListen string
	// AdminGrants are the permissions of callers of AdminListen.
	AdminGrants []admin.RoleGrant
	// Tracing configures the export of traces. The instance fills in what identifies it. Endpoint empty: none.
	Tracing tracing.Config
	// Seed makes decisions reproducible in tests and experiments; 0 uses the system's random source. No configuration
	// key exists for it, because production decisions must not be predictable.
	Seed uint64
	// Version is shown in status.
	Version string
	// Registry receives the metrics; nil creates one.
	Registry *prometheus.Registry
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

func (c *Config) openListener() (net.Listener, error) {
	if c.Network != nil {
		return c.Network.Listen(c.Listen)
	}
	return net.Listen("tcp", c.Listen)
}

func (c *Config) validateAndDefault() error {
	if c.Name == "" || c.Region == "" || c.Zone == "" {
		return errors.New("a local instance needs name, region and zone")
	}
	if c.Certs == nil && (!c.Plain || len(c.Gateways) > 0) {
		return errors.New("a local instance needs tls certificates, unless http.plain is set and no gateways are named")
	}
	if c.Certs != nil {
		id := c.Certs.ID()
		if id.Role != identity.RoleLocal || id.Region != c.Region || id.Zone != c.Zone || id.Name != c.Name {
			return fmt.Errorf("the certificate is for %s, not for local %s of zone %s/%s: issue one that matches", id, c.Name, c.Region, c.Zone)
		}
	}
	if _, err := pick.ParsePolicy(c.Policy); err != nil {
		return err
	}
	if c.PrefixIndex <= 0 {
		c.PrefixIndex = sched.DefaultPrefixIndexBytes
	}
	if c.ScrapeInterval <= 0 {
		c.ScrapeInterval = time.Second
	}
	return nil
}

// newRandomSource returns the random source of an instance's decisions and the secret that seeds its prefix hashes.
// Neither is predictable from outside, unless a test has set Seed.
func (c *Config) newRandomSource() (rng *mrand.Rand, secret uint64) {
	if c.Seed != 0 {
		return sched.SeedRandom(c.Seed)
	}
	var seed [24]byte
	_, _ = rand.Read(seed[:]) // never fails: the runtime aborts instead
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(seed[8*i:]) }
	return mrand.New(mrand.NewPCG(u(0), u(1))), u(2)
}

// newScrapeJitter returns the jitter of a worker's scrapes.
func (c *Config) newScrapeJitter(worker string) sched.ScrapeJitter {
	seed := c.Seed
	if seed == 0 {
		seed = mrand.Uint64()
	}
	return sched.NewScrapeJitter(seed, worker)
}
