// The stream of live figures: the newest answer of each feed, and its age.

// oldAfterMS is the age at which figures are shown as out of date. Ticks come each second.
const oldAfterMS = 4000;
// silentAfterMS is the time without any event after which the connection counts as lost.
const silentAfterMS = 3500;

export class Live {
  constructor(onChange) {
    this.onChange = onChange;
    this.values = {};
    this.faults = {};
    this.ages = {};
    this.feeds = [];
    this.eventAt = 0;
    this.source = null;
    this.retry = 0;
  }

  // show opens a stream of the feeds. Values of feeds that were shown before stay, with their age.
  show(feeds) {
    if (this.source && feeds.join() === this.feeds.join()) return;
    this.feeds = feeds;
    this.open();
  }

  open() {
    this.close();
    if (this.feeds.length === 0) return;
    const source = new EventSource('stream?feeds=' + this.feeds.join(','));
    this.source = source;
    for (const feed of this.feeds) source.addEventListener(feed, (e) => {
      this.values[feed] = { value: JSON.parse(e.data), at: performance.now() };
      delete this.faults[feed];
      this.ages[feed] = 0;
      this.heard();
      this.onChange(feed);
    });
    source.addEventListener('fault', (e) => {
      const f = JSON.parse(e.data);
      this.faults[f.feed] = f.message;
      this.heard();
      this.onChange(f.feed);
    });
    source.addEventListener('tick', (e) => {
      this.ages = { ...this.ages, ...JSON.parse(e.data) };
      this.heard();
      this.onChange(null);
    });
    source.onerror = () => {
      // The browser opens a broken stream again by itself, but not one that was refused.
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        clearTimeout(this.retry);
        this.retry = setTimeout(() => this.onRefused(), 2000);
      }
      this.onChange(null);
    };
  }

  heard() { this.eventAt = performance.now(); }

  close() {
    clearTimeout(this.retry);
    if (this.source) this.source.close();
    this.source = null;
  }

  value(feed) { return this.values[feed] && this.values[feed].value; }

  // age is the time since a feed was read at the node, in ms; Infinity before the first time.
  age(feed) {
    if (!this.values[feed] && !this.faults[feed]) return Infinity;
    const known = this.ages[feed];
    return known === undefined || known < 0 ? Infinity : known + performance.now() - Math.max(this.eventAt, 0);
  }

  // state describes the shown feeds: connected, and the greatest age of those with a value.
  state() {
    const connected = performance.now() - this.eventAt < silentAfterMS;
    const ages = this.feeds.filter((f) => this.values[f]).map((f) => this.age(f));
    const age = ages.length ? Math.max(...ages) : null;
    return { connected, age, old: !connected || (age !== null && age > oldAfterMS) };
  }
}
