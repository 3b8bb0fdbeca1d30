// Package demand measures what clients demand of a gateway: the rates by service, model and cell of their location, the
// client networks with the most demand, and the output lengths of models.
//
// Requests are counted whether they are served or not. Amounts decay over time and memory is bounded.
package demand
