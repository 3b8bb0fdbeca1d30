package admin

const pathNotifyTest = "/v1/notify/test"

// NotifyTestRequest asks a global node to send a test event to the webhooks of its notifications.
type NotifyTestRequest struct {
	Endpoint string `json:"endpoint,omitempty"` // its name; empty: all
}

// NotifyTestAnswer has the result of each endpoint.
type NotifyTestAnswer struct {
	Node    string             `json:"node"`
	Event   string             `json:"event"` // its id
	Results []NotifyTestResult `json:"results"`
}

// NotifyTestResult is one delivery of a test event.
type NotifyTestResult struct {
	Endpoint string  `json:"endpoint"`
	Seconds  float64 `json:"seconds"`
	Error    string  `json:"error,omitempty"` // empty: delivered
}
