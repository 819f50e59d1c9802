// What benchmarks/dashboard.py runs in the pages: `bench.…`.

globalThis.bench = {
  // Notes in `readyAt` when an element can be used: the frame after it is there.
  watch(selector) {
    bench.readyAt = 0
    const look = () => {
      if (!document.querySelector(selector)) return requestAnimationFrame(look)
      requestAnimationFrame(() => setTimeout(() => { bench.readyAt = performance.now() }))
    }
    look()
  },

  loadedBytes() {
    return ['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type))
      .filter(one => !one.name.includes('/api/'))
      .reduce((sum, one) => sum + one.encodedBodySize, 0)
  },

  // Notes in `longest` the longest time between two frames from now on. In each frame it calls
  // `step` with the time since the last one, until that returns true.
  frames(step = () => false) {
    bench.longest = 0
    let last = performance.now()
    const frame = now => {
      bench.longest = Math.max(bench.longest, now - last)
      if (step(now - last)) return
      last = now
      requestAnimationFrame(frame)
    }
    requestAnimationFrame(frame)
  },

  // Scrolls up at 6,000 px a second to the first message; returns the largest gap in pixels.
  scroll: () => new Promise(done => {
    const log = document.querySelector('[role=log]')
    let gap = 0
    bench.frames(elapsed => {
      const box = log.getBoundingClientRect()
      const rows = [...log.querySelectorAll('[data-index]')].map(row => row.getBoundingClientRect())
        .filter(row => row.bottom > box.top && row.top < box.bottom).sort((a, b) => a.top - b.top)
      const covered = rows.reduce((at, row) => {
        gap = Math.max(gap, row.top - at)
        return Math.max(at, row.bottom)
      }, Math.max(box.top, log.firstElementChild.getBoundingClientRect().top + 56))
      gap = Math.max(gap, box.bottom - 24 - covered)
      if (log.innerText.includes('Message 1 of')) {
        done(Math.round(gap))
        return true
      }
      log.scrollTop -= 6 * Math.min(50, elapsed)
    })
  }),

  // The name of the tabs' lock and channel (web/src/live/live.ts).
  stream: () => `outrider-events:${new URL('api/v1/events?deltas=true', document.baseURI)}`,

  // Leads the browser's tabs in place of one of the dashboard: the deltas come at an exact pace.
  lead: () => new Promise(leading => navigator.locks.request(bench.stream(), () => {
    bench.channel = new BroadcastChannel(bench.stream())
    const live = () => ({type: 'state', state: {live: true, lastAt: Date.now()}})
    bench.channel.onmessage = () => bench.channel.postMessage(live())
    leading()
    return new Promise(() => {})
  })),

  sendDeltas: (targetId, messageId, pace, seconds) => new Promise(done => {
    const words = ['These', 'are', '**words**', 'that', '`arrive`', 'one', 'after', 'the', 'other.']
    const began = performance.now()
    let revision = 0
    const timer = setInterval(() => {
      const due = Math.floor((performance.now() - began) / 1000 * pace)
      while (revision < Math.min(due, pace * seconds)) {
        const text = words[revision % words.length] + (revision % 60 === 59 ? '\n\n' : ' ')
        const data = {targetId, messageId, revision: revision++, op: 'append', text}
        const frame = {event: 'chat:delta', data: JSON.stringify(data)}
        bench.channel.postMessage({type: 'frame', frame})
      }
      if (revision < pace * seconds) return
      clearInterval(timer)
      done()
    }, 1000 / pace)
  }),

  // Notes in `delays` when a title of the session is drawn; each is the time, in seconds, at which
  // the agent gave it.
  watchTitles() {
    bench.delays = []
    const heading = document.querySelector('h1')
    let known = heading.textContent
    new MutationObserver(() => {
      const title = document.querySelector('h1').textContent
      if (title === known) return
      known = title
      requestAnimationFrame(() => {
        const pixels = new MessageChannel()
        pixels.port1.onmessage = () => bench.delays.push(Date.now() - Number(title) * 1000)
        pixels.port2.postMessage(0)
      })
    }).observe(heading, {characterData: true, childList: true, subtree: true})
  },
}
