package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The types of OpenAI's error object used here.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeAuthentication = "authentication_error"
	TypePermission     = "permission_error"
	TypeRateLimit      = "rate_limit_error"
	TypeUnavailable    = "service_unavailable_error"
	TypeServer         = "server_error"
)

// The stable codes. Clients and tests depend on them; the messages may change.
const (
	CodeInvalidJSON      = "invalid_json"
	CodeInvalidValue     = "invalid_value"
	CodeModelRequired    = "model_required"
	CodeModelNotFound    = "model_not_found"
	CodeBodyTooLarge     = "body_too_large"
	CodeBodyTooSlow      = "body_too_slow"
	CodeContextTooLong   = "context_too_long"
	CodeInvalidAPIKey    = "invalid_api_key"
	CodeInvalidToken     = "invalid_token"
	CodeModelNotAllowed  = "model_not_allowed"
	CodeResidency        = "residency"
	CodeRequests         = "requests_per_minute"
	CodeTokens           = "tokens_per_minute"
	CodeConcurrency      = "concurrency"
	CodeClientStreams    = "client_streams"
	CodeClientRefusals   = "client_refusals"
	CodeUnknownHost      = "unknown_host"
	CodeQuota            = "daily_budget"
	CodeNoCapacity       = "no_capacity"
	CodeModelLoading     = "model_loading"
	CodeModelLoadFailed  = "model_load_failed"
	CodeDeadline         = "deadline_unmeetable"
	CodeUpstream         = "upstream_error"
	CodeUpstreamLost     = "upstream_lost"
	CodeWorkerCrashed    = "worker_crashed"
	CodeKillsWorkers     = "request_kills_workers"
	CodeSuspected        = "request_suspected"
	CodeNotReady         = "not_ready"
	CodeNotFound         = "not_found"
	CodeMethodNotAllowed = "method_not_allowed"
	CodeEncoding         = "unsupported_encoding"
	CodeFraming          = "bad_framing"
)

// Bounds of Retry-After: OpenAI's own client does not retry at all if the value exceeds 120 s.
const (
	MinRetryAfter = time.Second
	MaxRetryAfter = 120 * time.Second
)

// Error is a refusal in OpenAI's shape.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Type, Code and Param are for programs, Message for people. Message never contains a key or a prompt.
	Type, Code, Param, Message string
	// RetryAfter is sent with 429 and 503, clamped to 1..120 s; 0 sends none.
	RetryAfter time.Duration
	// NoRetry tells clients that a retry is useless.
	NoRetry bool
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// ClampedRetryAfter returns RetryAfter within its bounds; 0 if none is to be sent.
func (e *Error) ClampedRetryAfter() time.Duration {
	if e.RetryAfter <= 0 {
		return 0
	}
	return min(max(e.RetryAfter, MinRetryAfter), MaxRetryAfter)
}

// JSON returns the response body.
func (e *Error) JSON() []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	in := inner{Message: e.Message, Type: e.Type, Code: e.Code}
	if e.Param != "" {
		in.Param = &e.Param
	}
	b, err := json.Marshal(map[string]inner{"error": in})
	if err != nil { // strings always marshal
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`)
	}
	return b
}

// knownCodes are the codes above, which errors of another tier may have. A worker's own codes become neither a
// metric label nor one of our codes.
var knownCodes = []string{
	CodeInvalidJSON, CodeInvalidValue, CodeModelRequired, CodeModelNotFound, CodeBodyTooLarge, CodeBodyTooSlow, CodeContextTooLong,
	CodeInvalidAPIKey, CodeInvalidToken, CodeModelNotAllowed, CodeResidency, CodeRequests, CodeTokens, CodeConcurrency,
	CodeClientStreams, CodeQuota, CodeNoCapacity, CodeModelLoading, CodeModelLoadFailed,
	CodeClientRefusals, CodeUnknownHost, CodeDeadline, CodeUpstream, CodeUpstreamLost, CodeWorkerCrashed,
	CodeKillsWorkers, CodeSuspected, CodeNotReady, CodeNotFound, CodeMethodNotAllowed, CodeEncoding, CodeFraming,
}

// ParseError parses an error of another tier, or returns nil if the body is not one.
func ParseError(status int, body []byte) *Error {
	var in struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if json.Unmarshal(body, &in) != nil || !slices.Contains(knownCodes, in.Error.Code) {
		return nil
	}
	e := &Error{Status: status, Type: in.Error.Type, Code: in.Error.Code, Message: in.Error.Message}
	if in.Error.Param != nil {
		e.Param = *in.Error.Param
	}
	return e
}

// StreamEvent returns the error as one server-sent event, for a stream that has begun.
func (e *Error) StreamEvent() []byte {
	return append(append([]byte("data: "), e.JSON()...), '\n', '\n')
}

func invalidRequest(status int, code, param, message string) *Error {
	return &Error{Status: status, Type: TypeInvalidRequest, Code: code, Param: param, Message: message, NoRetry: true}
}

func wrongType(param, want string) *Error {
	return invalidRequest(400, CodeInvalidValue, param, fmt.Sprintf("%q must be %s", param, want))
}

// InvalidJSON refuses a body that cannot be parsed.
func InvalidJSON(message string) *Error { return invalidRequest(400, CodeInvalidJSON, "", message) }

// ModelRequired refuses a body that names no model.
func ModelRequired() *Error {
	return invalidRequest(400, CodeModelRequired, "model", `name a model: {"model": "..."}`)
}

// ModelNotFound refuses an unknown model and lists the served ones.
func ModelNotFound(model string, served []string) *Error {
	if len(model) > 128 {
		model = model[:128] + "..."
	}
	msg := fmt.Sprintf("the model %q is not served here", model)
	if len(served) > 0 {
		msg += "; served: " + strings.Join(served[:min(len(served), 64)], ", ")
	}
	return invalidRequest(404, CodeModelNotFound, "model", msg)
}

// ModelNotAllowed refuses a model that the tenant may not use.
func ModelNotAllowed(model string) *Error {
	e := invalidRequest(403, CodeModelNotAllowed, "model", fmt.Sprintf("this key may not use the model %q", model))
	e.Type = TypePermission
	return e
}

// BadFraming refuses a request whose end is ambiguous.
func BadFraming(message string) *Error { return invalidRequest(400, CodeFraming, "", message) }

// BodyTooLarge refuses a body over limit bytes.
func BodyTooLarge(limit int64) *Error {
	return invalidRequest(413, CodeBodyTooLarge, "", fmt.Sprintf("the body is larger than %d bytes", limit))
}

// BodyTooSlow refuses a body that did not arrive in time.
func BodyTooSlow(within time.Duration) *Error {
	e := invalidRequest(408, CodeBodyTooSlow, "", fmt.Sprintf("the body did not arrive within %s", within))
	e.NoRetry = false
	return e
}

// BodyMemoryFull refuses a request whose body does not fit into the body memory, before it is read to its end.
func BodyMemoryFull(retryAfter time.Duration) *Error {
	return &Error{
		Status: 503, Type: TypeUnavailable, Code: CodeNoCapacity, RetryAfter: max(retryAfter, MinRetryAfter),
		Message: "the memory for request bodies is full: try again later, or send a shorter body",
	}
}

// ContextTooLong refuses a request of tokens (prompt and output) for a model with a context of limit.
func ContextTooLong(tokens, limit int) *Error {
	return invalidRequest(400, CodeContextTooLong, "messages",
		fmt.Sprintf("prompt and output come to about %d tokens, the model takes %d", tokens, limit))
}

// OutputTooLong refuses a request for more output tokens than the model allows.
func OutputTooLong(asked, limit int) *Error {
	return invalidRequest(400, CodeInvalidValue, "max_tokens", fmt.Sprintf("max_tokens is too large: %d. This model gives at most %d output tokens", asked, limit))
}

// InvalidAPIKey refuses an unauthenticated client.
func InvalidAPIKey() *Error {
	return &Error{
		Status: 401, Type: TypeAuthentication, Code: CodeInvalidAPIKey, NoRetry: true,
		Message: "no valid API key: send it as \"Authorization: Bearer KEY\"",
	}
}

// ResidencyDenied refuses a request that no permitted region may serve from here.
func ResidencyDenied(region string) *Error {
	return &Error{
		Status: 403, Type: TypePermission, Code: CodeResidency, NoRetry: true,
		Message: fmt.Sprintf("this key may not be served in region %s: its residency allows other jurisdictions only", region),
	}
}

// RateLimited refuses a request over the tenant's own limit; code is one of CodeRequests, CodeTokens,
// CodeConcurrency.
func RateLimited(code string, retry time.Duration) *Error {
	return &Error{
		Status: 429, Type: TypeRateLimit, Code: code, RetryAfter: max(retry, MinRetryAfter),
		Message: "the key's limit of " + strings.ReplaceAll(code, "_", " ") + " is used up",
	}
}

// ClientStreams refuses a client with too many concurrent requests from one address.
func ClientStreams(limit int) *Error {
	return &Error{
		Status: 429, Type: TypeRateLimit, Code: CodeClientStreams, RetryAfter: MinRetryAfter,
		Message: fmt.Sprintf("this address has %d requests under way, as many as one may have: wait for some to finish", limit),
	}
}

// ClientRefusals refuses a client whose address has sent too many invalid tokens or tickets.
func ClientRefusals() *Error {
	return &Error{
		Status: 429, Type: TypeRateLimit, Code: CodeClientRefusals, RetryAfter: MinRetryAfter,
		Message: "too many tokens or tickets from this address were refused: no more are checked for now; try again later, with one that is good",
	}
}

// UnknownHost refuses a request whose Host names no service.
func UnknownHost(host string) *Error {
	return &Error{
		Status: 421, Type: TypeInvalidRequest, Code: CodeUnknownHost, NoRetry: true,
		Message: fmt.Sprintf("no service is called %q: call a service by its name, or the gateway by its address", host[:min(len(host), 64)]),
	}
}

// BudgetSpent refuses until the tenant's next day begins.
func BudgetSpent(retry time.Duration) *Error {
	return &Error{
		Status: 429, Type: TypeRateLimit, Code: CodeQuota, RetryAfter: max(retry, MinRetryAfter), NoRetry: retry > time.Minute,
		Message: "the tenant's budget for today is used up",
	}
}

// NoCapacity refuses because no worker has capacity.
func NoCapacity(model string, retry time.Duration) *Error {
	return &Error{
		Status: 503, Type: TypeUnavailable, Code: CodeNoCapacity, RetryAfter: max(retry, MinRetryAfter),
		Message: fmt.Sprintf("no capacity for %s at the moment", model),
	}
}

// ModelLoading refuses a request without a deadline that has waited long enough for its model to load, which is
// expected after ready.
func ModelLoading(model string, ready time.Duration) *Error {
	return &Error{
		Status: 503, Type: TypeUnavailable, Code: CodeModelLoading, RetryAfter: max(ready, MinRetryAfter),
		Message: fmt.Sprintf("%s is not in memory and takes about %s more to load, which is longer than requests wait", model, ready.Round(100*time.Millisecond)),
	}
}

// ModelLoadFailed refuses because no worker could load the model; the next attempt is after again.
func ModelLoadFailed(model string, again time.Duration) *Error {
	return &Error{
		Status: 503, Type: TypeUnavailable, Code: CodeModelLoadFailed, RetryAfter: max(again, MinRetryAfter),
		Message: fmt.Sprintf("no worker could load %s; the next try is in %s", model, again.Round(100*time.Millisecond)),
	}
}

// DeadlineUnmeetable refuses a request that would miss its deadline; tier is the tier that decided.
func DeadlineUnmeetable(tier string) *Error {
	return &Error{
		Status: 504, Type: TypeUnavailable, Code: CodeDeadline, NoRetry: true,
		Message: "the request's deadline cannot be met (decided by the " + tier + " tier)",
	}
}

// DeadlineBeforeLoad refuses a request whose deadline comes before its model is loaded, which is expected after
// ready. Unlike other deadlines it may be met elsewhere, or here a little later.
func DeadlineBeforeLoad(tier, model string, ready time.Duration) *Error {
	e := DeadlineUnmeetable(tier)
	e.NoRetry, e.RetryAfter = false, max(ready, MinRetryAfter)
	e.Message += fmt.Sprintf(": %s is not in memory and takes about %s to load", model, ready.Round(100*time.Millisecond))
	return e
}

// UpstreamFailed reports that the tier or worker below could not be reached or failed before it responded.
func UpstreamFailed(what string) *Error {
	return &Error{Status: 502, Type: TypeServer, Code: CodeUpstream, Message: what}
}

// UpstreamLost ends a stream whose worker died.
func UpstreamLost() *Error {
	return &Error{Status: 502, Type: TypeServer, Code: CodeUpstreamLost, Message: "the answer broke off: its worker was lost"}
}

// WorkerCrashed ends a stream whose worker died while serving few other requests, so that the request may be
// the cause.
func WorkerCrashed() *Error {
	return &Error{Status: 502, Type: TypeServer, Code: CodeWorkerCrashed, Message: "the answer broke off: its worker died"}
}

// RequestKillsWorkers refuses a request under which workers died, for the duration within.
func RequestKillsWorkers(within time.Duration) *Error {
	return invalidRequest(422, CodeKillsWorkers, "",
		fmt.Sprintf("workers died under this request again: it is refused for %s from then. Change the request, or ask the operator", within))
}

// RequestSuspected refuses a copy of a request under which a worker died, while one further attempt is in
// progress.
func RequestSuspected() *Error {
	return &Error{
		Status: 503, Type: TypeUnavailable, Code: CodeSuspected, RetryAfter: MinRetryAfter,
		Message: "a worker died under this request: one further attempt is under way, try again when it has ended",
	}
}

// NotReady refuses because this instance has not yet received a spec.
func NotReady() *Error {
	return &Error{
		Status: 503, Type: TypeUnavailable, Code: CodeNotReady, RetryAfter: MinRetryAfter,
		Message: "this instance has not received its configuration yet",
	}
}

// AnthropicJSON returns the response body in the shape of Anthropic's API, with our code in addition to its
// type.
func (e *Error) AnthropicJSON() []byte {
	type inner struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    string `json:"code"`
	}
	b, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", inner{e.anthropicType(), e.Message, e.Code}})
	if err != nil { // strings always marshal
		return []byte(`{"type":"error","error":{"type":"api_error","message":"internal error","code":"internal"}}`)
	}
	return b
}

// AnthropicEvent returns the error as one event, for a stream that has begun.
func (e *Error) AnthropicEvent() []byte {
	return append(append([]byte("event: error\ndata: "), e.AnthropicJSON()...), '\n', '\n')
}

func (e *Error) anthropicType() string {
	switch e.Status {
	case 400, 405, 415:
		return "invalid_request_error"
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503:
		return "overloaded_error"
	case 408, 504:
		return "timeout_error"
	}
	return "api_error"
}
