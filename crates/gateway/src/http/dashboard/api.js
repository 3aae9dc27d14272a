// Requests to the gateway that the page comes from, and to no other.

import { plain } from '/dashboard/elements.js';

export class Refused extends Error {
  constructor(status, text, problem) {
    // It may quote a name.
    super(plain(text));
    this.status = status;
    this.type = problem.type;
    this.problems = problem.problems;
  }
}

async function ask(path, options = {}) {
  const response = await fetch(path, { credentials: 'same-origin', cache: 'no-store', ...options });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const text = [problem.title, problem.detail].filter(Boolean).join(': ');
  throw new Refused(response.status, text || `status ${response.status}`, problem);
}

export const read = path => ask(`/api/v1/${path}`);

export const get = async path => (await read(path)).json();

export const post = async (path, question) => (await ask(`/api/v1/${path}`, {
  method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(question),
})).json();

export const put = (path, change, headers = {}) => ask(`/api/v1/${path}`, {
  method: 'PUT', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(change),
});

export const remove = path => ask(`/api/v1/${path}`, { method: 'DELETE' });

// A topic in a path: each level is encoded, and the slashes between them stay.
export const topicPath = topic => `/topics/${topic.split('/').map(encodeURIComponent).join('/')}`;

export const publish = (topic, payload, type, retain) => ask(topicPath(topic), {
  method: retain ? 'PUT' : 'POST', body: payload, headers: type ? { 'content-type': type } : {},
});
