package tracing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"google.golang.org/grpc/credentials"
)

// defaultTracesPath is the path of traces for OTLP over HTTP, where the endpoint names none.
const defaultTracesPath = "/v1/traces"

// newExporter returns the exporter. It connects with the first export.
func newExporter(cfg *Config) (*otlptrace.Exporter, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("tracing.endpoint %q is not a URL such as http://127.0.0.1:4317", cfg.Endpoint)
	}
	headers, err := readHeaderFiles(cfg.HeaderFiles)
	if err != nil {
		return nil, err
	}
	secure, err := newTLSConfig(cfg.CA)
	if err != nil {
		return nil, err
	}
	if cfg.Protocol == ProtocolGRPC {
		opts := []otlptracegrpc.Option{
			otlptracegrpc.WithEndpoint(u.Host), otlptracegrpc.WithHeaders(headers), otlptracegrpc.WithTimeout(exportTimeout),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: firstRetryDelay, MaxInterval: maxRetryDelay, MaxElapsedTime: exportTimeout}),
		}
		if u.Scheme == "http" {
			opts = append(opts, otlptracegrpc.WithInsecure())
		} else {
			opts = append(opts, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(secure)))
		}
		return otlptracegrpc.New(context.Background(), opts...)
	}
	path := u.Path
	if path == "" || path == "/" {
		path = defaultTracesPath
	}
	opts := []otlptracehttp.Option{
		otlptracehttp.WithEndpoint(u.Host), otlptracehttp.WithURLPath(path), otlptracehttp.WithHeaders(headers), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: firstRetryDelay, MaxInterval: maxRetryDelay, MaxElapsedTime: exportTimeout}),
	}
	if u.Scheme == "http" {
		opts = append(opts, otlptracehttp.WithInsecure())
	} else {
		opts = append(opts, otlptracehttp.WithTLSClientConfig(secure))
	}
	return otlptracehttp.New(context.Background(), opts...)
}

// readHeaderFiles reads the values of headers.
func readHeaderFiles(files map[string]string) (map[string]string, error) {
	headers := make(map[string]string, len(files))
	for name, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a header of tracing.header_files: %w", err)
		}
		headers[name] = strings.TrimSpace(string(text))
	}
	return headers, nil
}

// newTLSConfig returns the TLS settings for an https endpoint.
func newTLSConfig(ca string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("reading tracing.ca: %w", err)
	}
	if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tracing.ca: %s has no certificate in PEM form", ca)
	}
	return cfg, nil
}

// redirectLibraryErrors sends errors that the library reports outside of an export to the log: by default it prints them. The
// handler is the process's: with several tracers, the last one logs.
func redirectLibraryErrors(t *Tracer) { otel.SetErrorHandler(otel.ErrorHandlerFunc(t.logFailure)) }
