pragma circom 2.1.9;

include "node_modules/circomlib/circuits/bitify.circom";
include "node_modules/circomlib/circuits/mux1.circom";
include "node_modules/circomlib/circuits/poseidon.circom";

// A token that another one beats, over rows that are not shown. The rules are those of docs/reference/imprints.md and of
// troth.protocol.imprints; both are held together by tests/contracts/test_imprints.py.
//
// A row is rounded: a number is (-1)^negative * magnitude * 2^(scale - c), with 20 bits of magnitude and one scale of
// six bits for the row; c is 44 for a state and 63 for a row of the head. So sums are in units of 2^-107.

function MAGNITUDE_BITS() { return 20; }
function SCALE_BITS() { return 6; }
// Numbers in one element of the field: 12 * 21 bits.
function NUMBERS() { return 12; }
// Elements that one call of the hash takes beside what was hashed before.
function ELEMENTS() { return 4; }
function LEAD_BITS() { return 84; }
function TOKEN_BITS() { return 32; }
function UNIT_BITS() { return 107; }

// A row in range, what its hash is, the sum of its magnitudes and 2^scale.
template Row(columns) {
    signal input magnitude[columns];
    signal input negative[columns];
    signal input scale;
    signal output imprint;
    signal output total;
    signal output unit;

    component ranges[columns];
    var sum = 0;
    for (var i = 0; i < columns; i++) {
        ranges[i] = Num2Bits(MAGNITUDE_BITS());
        ranges[i].in <== magnitude[i];
        negative[i] * (1 - negative[i]) === 0;
        sum += magnitude[i];
    }
    total <== sum;

    component exponent = Num2Bits(SCALE_BITS());
    exponent.in <== scale;
    signal powers[SCALE_BITS() + 1];
    powers[0] <== 1;
    for (var i = 0; i < SCALE_BITS(); i++) {
        powers[i + 1] <== powers[i] * (1 + exponent.out[i] * (2 ** (2 ** i) - 1));
    }
    unit <== powers[SCALE_BITS()];

    var calls = (columns + NUMBERS() * ELEMENTS() - 1) \ (NUMBERS() * ELEMENTS());
    component hashes[calls];
    signal links[calls + 1];
    links[0] <== scale;
    for (var call = 0; call < calls; call++) {
        hashes[call] = Poseidon(1 + ELEMENTS());
        hashes[call].inputs[0] <== links[call];
        for (var element = 0; element < ELEMENTS(); element++) {
            var packed = 0;
            for (var number = 0; number < NUMBERS(); number++) {
                var at = (call * ELEMENTS() + element) * NUMBERS() + number;
                if (at < columns) {
                    var code = magnitude[at] + 2 ** MAGNITUDE_BITS() * negative[at];
                    packed += code * 2 ** ((MAGNITUDE_BITS() + 1) * number);
                }
            }
            hashes[call].inputs[1 + element] <== packed;
        }
        links[call + 1] <== hashes[call].out;
    }
    imprint <== links[calls];
}

// The root of a tree of rows in which this one stands.
template Path(levels) {
    signal input leaf;
    signal input place[levels];
    signal input siblings[levels];
    signal output root;

    component sides[levels];
    component hashes[levels];
    signal nodes[levels + 1];
    nodes[0] <== leaf;
    for (var level = 0; level < levels; level++) {
        sides[level] = MultiMux1(2);
        sides[level].c[0][0] <== nodes[level];
        sides[level].c[0][1] <== siblings[level];
        sides[level].c[1][0] <== siblings[level];
        sides[level].c[1][1] <== nodes[level];
        sides[level].s <== place[level];
        hashes[level] = Poseidon(2);
        hashes[level].inputs[0] <== sides[level].out[0];
        hashes[level].inputs[1] <== sides[level].out[1];
        nodes[level + 1] <== hashes[level].out;
    }
    root <== nodes[levels];
}

// The product of a state and a row of the head: the sum with its sign, and that of all magnitudes.
template Logit(columns) {
    signal input state[columns];
    signal input stateNegative[columns];
    signal input weight[columns];
    signal input weightNegative[columns];
    signal output signed;
    signal output size;

    signal sizes[columns];
    signal differ[columns];
    signal terms[columns];
    var sum = 0;
    var all = 0;
    for (var i = 0; i < columns; i++) {
        sizes[i] <== state[i] * weight[i];
        differ[i] <== stateNegative[i] * weightNegative[i];
        terms[i] <== sizes[i] * (1 - 2 * (stateNegative[i] + weightNegative[i] - 2 * differ[i]));
        sum += terms[i];
        all += sizes[i];
    }
    signed <== sum;
    size <== all;
}

// |value|, which has fewer bits than the field.
template Size(bits) {
    signal input value;
    signal input negative;
    signal output out;

    negative * (1 - negative) === 0;
    out <== value * (1 - 2 * negative);
    component range = Num2Bits(bits);
    range.in <== out;
}

template Beaten(columns, levels) {
    // What is public, in this order.
    signal input state;
    signal input head;
    signal input terms;
    // Constrained by nothing: a proof is for one context, which its verifier computes.
    signal input context;

    signal input stateMagnitude[columns];
    signal input stateNegative[columns];
    signal input stateScale;
    signal input ownMagnitude[columns];
    signal input ownNegative[columns];
    signal input ownScale;
    signal input ownSiblings[levels];
    signal input ownLogitNegative;
    signal input rivalMagnitude[columns];
    signal input rivalNegative[columns];
    signal input rivalScale;
    signal input rivalSiblings[levels];
    signal input rivalLogitNegative;

    // terms: lead of the noise, whether logits are rounded, token, rival; the lowest bits first.
    component split = Num2Bits(LEAD_BITS() + 1 + 2 * TOKEN_BITS());
    split.in <== terms;
    var lead = -(2 ** (LEAD_BITS() - 1));
    for (var i = 0; i < LEAD_BITS(); i++) {
        lead += split.out[i] * 2 ** i;
    }
    signal rounded <== split.out[LEAD_BITS()];
    var ownAt = LEAD_BITS() + 1;
    var rivalAt = ownAt + TOKEN_BITS();
    for (var i = levels; i < TOKEN_BITS(); i++) {
        split.out[ownAt + i] === 0;
        split.out[rivalAt + i] === 0;
    }

    component row = Row(columns);
    component ownRow = Row(columns);
    component rivalRow = Row(columns);
    component own = Logit(columns);
    component rival = Logit(columns);
    row.scale <== stateScale;
    ownRow.scale <== ownScale;
    rivalRow.scale <== rivalScale;
    for (var i = 0; i < columns; i++) {
        row.magnitude[i] <== stateMagnitude[i];
        row.negative[i] <== stateNegative[i];
        ownRow.magnitude[i] <== ownMagnitude[i];
        ownRow.negative[i] <== ownNegative[i];
        rivalRow.magnitude[i] <== rivalMagnitude[i];
        rivalRow.negative[i] <== rivalNegative[i];
        own.state[i] <== stateMagnitude[i];
        own.stateNegative[i] <== stateNegative[i];
        own.weight[i] <== ownMagnitude[i];
        own.weightNegative[i] <== ownNegative[i];
        rival.state[i] <== stateMagnitude[i];
        rival.stateNegative[i] <== stateNegative[i];
        rival.weight[i] <== rivalMagnitude[i];
        rival.weightNegative[i] <== rivalNegative[i];
    }
    row.imprint === state;

    component ownPath = Path(levels);
    component rivalPath = Path(levels);
    ownPath.leaf <== ownRow.imprint;
    rivalPath.leaf <== rivalRow.imprint;
    for (var i = 0; i < levels; i++) {
        ownPath.place[i] <== split.out[ownAt + i];
        ownPath.siblings[i] <== ownSiblings[i];
        rivalPath.place[i] <== split.out[rivalAt + i];
        rivalPath.siblings[i] <== rivalSiblings[i];
    }
    ownPath.root === head;
    rivalPath.root === head;

    signal ownUnit <== row.unit * ownRow.unit;
    signal rivalUnit <== row.unit * rivalRow.unit;
    signal ownLogit <== own.signed * ownUnit;
    signal rivalLogit <== rival.signed * rivalUnit;
    signal ownTerms <== own.size * ownUnit;
    signal rivalTerms <== rival.size * rivalUnit;
    // What rounding took: |h| u' + |w| u + u u' for each column, u and u' the units.
    signal ownLost <== (row.total + ownRow.total + columns) * ownUnit;
    signal rivalLost <== (row.total + rivalRow.total + columns) * rivalUnit;

    // Below 2^(2 * 20 + 13 + 2 * 63) for 8,192 columns.
    component ownSize = Size(180);
    ownSize.value <== ownLogit;
    ownSize.negative <== ownLogitNegative;
    component rivalSize = Size(180);
    rivalSize.value <== rivalLogit;
    rivalSize.negative <== rivalLogitNegative;

    var lost = ownLost + rivalLost;
    var summing = (ownTerms + rivalTerms + lost) * (columns + 2 + columns \ 128);
    var ahead = rivalLogit - ownLogit + lead * 2 ** (UNIT_BITS() - 64) - lost;
    // All times 2^32: 2^-24 of the terms, and 2^-8 of a rounded logit.
    signal rounding <== rounded * (2 ** 24 * (ownSize.out + rivalSize.out + lost) + summing);
    component beaten = Num2Bits(216);
    beaten.in <== ahead * 2 ** 32 - 2 ** 8 * (summing + 2 ** UNIT_BITS()) - rounding - 1;
}
