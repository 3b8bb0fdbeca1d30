package openai

import "encoding/json"

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
