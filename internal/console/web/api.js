// Calls of the admin API.

export class CallError extends Error {
  constructor(status, body) {
    super(body.message || 'the node answered ' + status);
    this.status = status;
    this.hint = body.hint || '';
    this.unknownOutcome = Boolean(body.unknown_outcome);
  }
}

// call makes a call and returns its answer, or throws a CallError. Without an answer the status is 0.
export async function call(method, path, body) {
  const headers = { 'Spillway-Console': '1' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', redirect: 'error' });
  } catch {
    throw new CallError(0, { message: 'the node does not answer', unknown_outcome: method !== 'GET' });
  }
  let answer = {};
  try { answer = await response.json(); } catch { /* an answer without JSON */ }
  if (!response.ok) throw new CallError(response.status, answer.error || {});
  return answer;
}
