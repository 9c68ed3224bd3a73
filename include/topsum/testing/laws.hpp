// SPDX-License-Identifier: BSL-1.0
/// \file
/// The laws of the concepts, as functions that check a model and return what failed: for this library's tests and for yours.
///
///     for (auto const& failure : topsum::laws::selection_policy<float>(my_policy{}, shapes)) std::cerr << failure << '\n';
///
/// No test framework is needed; an empty list means that every law held on every input tried. Inputs are made from fixed seeds,
/// so that a failure comes again.
#ifndef TOPSUM_TESTING_LAWS_HPP
#define TOPSUM_TESTING_LAWS_HPP

#include <topsum/testing/codec_laws.hpp>
#include <topsum/testing/exchange_laws.hpp>
#include <topsum/testing/inputs.hpp>
#include <topsum/testing/residual_laws.hpp>
#include <topsum/testing/selection_laws.hpp>
#include <topsum/testing/transport_laws.hpp>

#endif
