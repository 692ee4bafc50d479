// The worker of one model, in the same file as the library. The page sends {module}, {start}, {play} and {look}. Every
// answer has the number of the start that it belongs to.
"use strict";
const sequences = {"in-distribution": 12, "ood-sparse": 48}, sliceMilliseconds = 80;
let library, run = 0, step = 0, steps = 0, text = "", playing = false, waiting = false, queue = Promise.resolve();

function call(name, ...values) {
  const result = JSON.parse(library.ccall(name, "string", values.map(value => typeof value), values));
  if (result.error) throw new Error(result.error);
  return result;
}
const answer = values => postMessage({run, step, ...values});

// Points of the curves: an early one, so that there is a line soon, then one for every 25 steps.
const isEarly = () => step === 3;
const isPoint = () => isEarly() || step % 25 === 0 || step === steps;

function look() {
  try {
    answer({inside: text === "" ? {tokens: [], answers: [], layers: []} : call("live_look", text), text});
  } catch (error) {
    answer({inside: {error: error.message}, text});
  }
}

function report() {
  const share = step < 25 ? 0.25 : 1;
  const rate = split => call("live_evaluate", split, share * sequences[split]).error_rate;
  answer({rates: Object.keys(sequences).map(rate)});
  if (!isEarly()) look();
}

// Trains for a moment, then lets messages in: they wait in the same queue as the next call.
const next = new MessageChannel();
next.port1.onmessage = () => {
  waiting = false;
  if (!playing || step >= steps) return;
  const begin = performance.now(), losses = [];
  do {
    losses.push(call("live_train", 1).loss);
    ++step;
  } while (!isPoint() && performance.now() - begin < sliceMilliseconds);
  answer({losses});
  if (isPoint()) report();
  work();
};
function work() {
  if (!waiting && playing) next.port2.postMessage(waiting = true);
}

async function receive(data) {
  if (data.module) {
    library = await live({
      instantiateWasm(imports, done) {
        WebAssembly.instantiate(data.module, imports).then(instance => done(instance, data.module));
        return {};
      },
    });
  }
  if ("look" in data) text = data.look;
  if (data.start) {
    const {encoding, pMax, heads, length, ignored} = data.start;
    run = data.run;
    step = 0;
    steps = call("live_start", encoding, pMax, heads, length, ignored).steps;
    answer({steps});
    report();
  } else if ("look" in data && run > 0) {
    look();
  }
  if ("play" in data) playing = data.play;
  work();
}
onmessage = ({data}) => {
  queue = queue.then(() => receive(data)).catch(error => answer({error: error.message}));
};
