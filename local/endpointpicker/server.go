package endpointpicker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Services of the gRPC health check, besides the empty name for the whole server and the external processor's own.
const (
	serviceLiveness  = "liveness"
	serviceReadiness = "readiness"
)

// Config configures a Server.
type Config struct {
	// Chooser begins requests. Required.
	Chooser Chooser
	// TLS is the configuration of the listener; nil serves without TLS.
	TLS *tls.Config
	// FailOpen lets the proxy choose an endpoint itself when the picker cannot decide.
	FailOpen bool
	// MaxStreams bounds the open requests. It must be positive.
	MaxStreams int
	// Registry receives the metrics. Required.
	Registry prometheus.Registerer
	// Log receives messages for operators. Required.
	Log *slog.Logger
}

// Server is an endpoint picker. Call Serve and Stop once each.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	cfg     Config
	metrics *pickerMetrics
	grpc    *grpc.Server
	health  *health.Server
	streams atomic.Int64
	stop    sync.Once
}

// New returns a server that does not serve yet. It is not ready before SetReady.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, metrics: newPickerMetrics(cfg.Registry), health: health.NewServer()}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxConcurrentStreams(maxConnStreams), grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	extprocv3.RegisterExternalProcessorServer(s.grpc, s)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(serviceLiveness, healthv1.HealthCheckResponse_SERVING)
	s.SetReady(false)
	return s
}

// SetReady sets what the health service reports: whether requests can be given endpoints.
func (s *Server) SetReady(on bool) {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if on {
		state = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", serviceReadiness, extprocv3.ExternalProcessor_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(service, state)
	}
}

// Serve accepts connections until Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Shutdown reports not serving at once and for good, accepts no new requests, waits until the open ones have ended or ctx has, and then ends
// them.
func (s *Server) Shutdown(ctx context.Context) {
	s.stop.Do(func() {
		s.health.Shutdown()
		done := make(chan struct{})
		go func() {
			s.grpc.GracefulStop()
			close(done)
		}()
		select {
		case <-done:
		case <-ctx.Done():
			s.grpc.Stop()
			<-done
		}
	})
}

// Process implements the external processor. It returns when the stream has ended and its request with it.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	x := &exchange{
		chooser: s.cfg.Chooser, send: stream.Send, failOpen: s.cfg.FailOpen, now: time.Now,
		onChoice: func(took time.Duration) { s.metrics.choices.Observe(took.Seconds()) },
	}
	if s.streams.Add(1) > int64(s.cfg.MaxStreams) {
		x.busy = tooManyStreams()
		s.metrics.overflow.Inc()
	}
	s.metrics.streams.Inc()
	defer func() {
		x.end(Broken, outcomeBroken)
		s.streams.Add(-1)
		s.metrics.streams.Dec()
		s.metrics.requests.WithLabelValues(x.outcome).Inc()
	}()
	err := s.runExchange(stream, x)
	if errors.Is(err, errAnswered) {
		return nil
	}
	if status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.FailedPrecondition {
		if x.outcome == "" {
			x.outcome = "malformed"
		}
		s.cfg.Log.Debug("a proxy's stream was ended", telemetry.ErrorAttr(err))
	}
	return err
}

func tooManyStreams() *openai.Error {
	return &openai.Error{
		Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, Code: openai.CodeNoCapacity, RetryAfter: openai.MinRetryAfter,
		Message: "the endpoint picker has too many open requests: try again later",
	}
}

// runExchange passes the messages of a stream to its exchange. A second goroutine reads them, so that the end of the stream ends
// a wait in the queue.
func (s *Server) runExchange(stream extprocv3.ExternalProcessor_ProcessServer, x *exchange) error {
	waiting, endWait := context.WithCancel(stream.Context())
	defer endWait()
	messages, readErr := make(chan *extprocv3.ProcessingRequest, pendingMessages), error(nil)
	go func() {
		defer close(messages)
		for {
			m, err := stream.Recv()
			if err != nil {
				readErr = err
				endWait()
				return
			}
			if m.GetResponseHeaders() != nil {
				endWait() // the proxy has answered the request itself, for example after its own timeout
			}
			select {
			case messages <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	slow := time.NewTimer(s.cfg.Chooser.BodyTimeout())
	defer slow.Stop()
	for {
		late := slow.C
		if x.phase > awaitBody {
			late = nil
		}
		select {
		case m, ok := <-messages:
			if !ok {
				return describeEnd(readErr)
			}
			if err := x.handleMessage(waiting, m); err != nil {
				return err
			}
		case <-x.cancelled():
			if err := x.giveUp(); err != nil {
				return err
			}
		case <-late:
			return x.refuse(&PickRefusal{Error: openai.BodyTooSlow(s.cfg.Chooser.BodyTimeout())})
		}
	}
}

// describeEnd returns the status of a stream that the proxy has ended: none for an orderly end.
func describeEnd(err error) error {
	if c := status.Code(err); c == codes.ResourceExhausted { // a message over the limit, which gRPC refuses before it is read
		return err
	}
	return nil
}
